package kernels

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxImage bounds what is taken from a package: images are 8-15 MB.
	maxImage = 128 * mebibyte

	imageFile  = "vmlinuz"
	configFile = "config"
)

// Kernel is a kernel image unpacked on this host.
type Kernel struct {
	Package string // linux-image-6.1.0-56-cloud-amd64
	Version string // of the package
	Release string // what uname -r says in it
	Image   string // path of the bootable image
	Config  string // path of its build configuration
}

// Fetch finds the newest Debian kernel of a series ("6.1") in apt's lists,
// downloads its package unless dir has it already, and unpacks the image and
// its configuration there. An empty dir is "atys/kernels" in the user's
// cache. It takes the cloud flavour: the same source and BPF configuration
// as the generic one in a third of the download, with the serial port and
// everything else a machine without disks needs built in.
func Fetch(ctx context.Context, series, dir string) (Kernel, error) {
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+$`).MatchString(series) {
		return Kernel{}, fmt.Errorf("kernel series %q: want two numbers, like \"6.1\"", series)
	}
	for _, tool := range []string{"apt-cache", "apt-get", "dpkg-deb"} {
		if _, err := find(tool, "kernels come out of Debian packages, run this on Debian"); err != nil {
			return Kernel{}, err
		}
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return Kernel{}, fmt.Errorf("find the cache folder: %w", err)
		}
		dir = filepath.Join(cache, "atys", "kernels")
	}
	name, err := findPackage(ctx, series)
	if err != nil {
		return Kernel{}, err
	}
	version, err := candidate(ctx, name)
	if err != nil {
		return Kernel{}, err
	}
	k := Kernel{Package: name, Version: version, Release: strings.TrimPrefix(name, "linux-image-")}
	// A version may have a colon (its epoch), which other tools split at.
	home := filepath.Join(dir, name+"_"+strings.ReplaceAll(version, ":", "%3a"))
	k.Image, k.Config = filepath.Join(home, imageFile), filepath.Join(home, configFile)
	if _, err := os.Stat(home); err == nil {
		return k, nil
	}
	if err := download(ctx, k, dir, home); err != nil {
		return Kernel{}, err
	}
	return k, nil
}

// findPackage asks what the current release's kernel is first, and searches
// by name where that is another series.
func findPackage(ctx context.Context, series string) (string, error) {
	depends, err := output(ctx, "apt-cache", "depends", "linux-image-cloud-amd64")
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err == nil { // it fails where the lists do not know the package
		if name := newest(depends, series); name != "" {
			return name, nil
		}
	}
	names, err := output(ctx, "apt-cache", "search", "--names-only",
		"^linux-image-"+regexp.QuoteMeta(series)+`\.`)
	if err != nil {
		return "", err
	}
	if name := newest(names, series); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("apt knows no cloud kernel of series %q: run \"apt-get update\" as root; "+
		"a host that is not the Debian release with this kernel needs that release in its apt sources", series)
}

// newest returns the name of the highest kernel of the series in a listing
// of apt-cache, "" if there is none.
func newest(listing []byte, series string) string {
	name := regexp.MustCompile(`\blinux-image-` + regexp.QuoteMeta(series) +
		`\.([0-9]+)(?:\+deb[0-9]+)?(?:-([0-9]+))?-cloud-amd64(?:[\s:]|$)`)
	best, bestRank := "", [2]int{-1, -1}
	for _, m := range name.FindAllSubmatch(listing, -1) {
		// Atoi's 0 for an absent number is the rank wanted.
		patch, _ := strconv.Atoi(string(m[1]))
		abi, _ := strconv.Atoi(string(m[2]))
		rank := [2]int{patch, abi}
		if rank[0] > bestRank[0] || rank[0] == bestRank[0] && rank[1] > bestRank[1] {
			best, bestRank = strings.TrimRight(string(m[0]), ": \t\r\n"), rank
		}
	}
	return best
}

// candidate is the version that apt-get download would take.
func candidate(ctx context.Context, name string) (string, error) {
	policy, err := output(ctx, "apt-cache", "policy", name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(policy)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate: "); ok && v != "(none)" {
			return v, nil
		}
	}
	return "", fmt.Errorf("apt has no version of %q to download: run \"apt-get update\" as root", name)
}

// download fills home, all or nothing: it works in a folder beside it that
// is renamed at the end.
func download(ctx context.Context, k Kernel, dir, home string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create kernel cache: %w", err)
	}
	work, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return fmt.Errorf("create kernel cache: %w", err)
	}
	defer os.RemoveAll(work)
	cmd := exec.CommandContext(ctx, "apt-get", "download", "-q", k.Package+"="+k.Version)
	cmd.Dir = work
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download %q: %w: %s (if apt's lists are out of date, run \"apt-get update\" as root)",
			k.Package, err, bytes.TrimSpace(said))
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("download %q: apt-get left %d packages, want 1", k.Package, len(debs))
	}
	if err := unpack(ctx, debs[0], work, k.Release); err != nil {
		return fmt.Errorf("unpack %q: %w", k.Package, err)
	}
	if err := os.Remove(debs[0]); err != nil {
		return fmt.Errorf("clean kernel cache: %w", err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("share kernel cache: %w", err)
	}
	err = os.Rename(work, home)
	if _, there := os.Stat(home); err != nil && there == nil {
		return nil // another process was quicker
	}
	return err
}

// unpack takes the image and the configuration out of a package's stream;
// the 100 MB of modules are never written.
func unpack(ctx context.Context, deb, dir, release string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var said bytes.Buffer
	cmd.Stderr = &said
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	want := map[string]string{
		"./boot/vmlinuz-" + release: filepath.Join(dir, imageFile),
		"./boot/config-" + release:  filepath.Join(dir, configFile),
	}
	took := takeFiles(stream, want)
	// dpkg-deb must not block on a full pipe when takeFiles stopped early.
	_, drained := io.Copy(io.Discard, stream)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("dpkg-deb: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return errors.Join(took, drained)
}

// takeFiles writes the wanted members (name to path) of a tar stream.
func takeFiles(r io.Reader, want map[string]string) error {
	members := tar.NewReader(r)
	left := len(want)
	for left > 0 {
		h, err := members.Next()
		if err == io.EOF {
			return fmt.Errorf("package lacks %d of %d files under ./boot", left, len(want))
		}
		if err != nil {
			return err
		}
		path, ok := want[h.Name]
		if !ok {
			continue
		}
		if h.Typeflag != tar.TypeReg || h.Size > maxImage {
			return fmt.Errorf("member %q: not a file of at most %d bytes", h.Name, maxImage)
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, members)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		left--
	}
	return nil
}

// output runs a tool of apt whose words are read, not shown.
func output(ctx context.Context, tool string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("%s %s: %w: %s", tool, args[0], err, bytes.TrimSpace(exit.Stderr))
		}
		return nil, fmt.Errorf("%s %s: %w", tool, args[0], err)
	}
	return out, nil
}
