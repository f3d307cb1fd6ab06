package kernels

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNewest(t *testing.T) {
	for _, tt := range []struct{ name, listing, series, want string }{
		{"depends", "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n", "6.1", "linux-image-6.1.0-56-cloud-amd64"},
		{"search, numeric order", "linux-image-6.1.0-9-cloud-amd64 - Linux\nlinux-image-6.1.0-10-cloud-amd64 - Linux\n", "6.1", "linux-image-6.1.0-10-cloud-amd64"},
		{"no unsigned, no dbg, no generic", "linux-image-6.1.0-9-cloud-amd64-unsigned - x\nlinux-image-6.1.0-9-cloud-amd64-dbg - x\nlinux-image-6.1.0-9-amd64 - x\n", "6.1", ""},
		{"other series", "  Depends: linux-image-6.12.48+deb13-cloud-amd64\n", "6.1", ""},
		{"trixie's names", "  Depends: linux-image-6.12.9+deb13-cloud-amd64\n  Depends: linux-image-6.12.48+deb13-cloud-amd64\n", "6.12", "linux-image-6.12.48+deb13-cloud-amd64"},
		{"virtual", "  Depends: <linux-image-6.1.0-56-cloud-amd64>\n", "6.1", ""},
		{"empty", "", "6.1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := newest([]byte(tt.listing), tt.series); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTakeFiles(t *testing.T) {
	pack := func(headers ...tar.Header) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			h.Size = int64(len(h.Name))
			if h.Typeflag != tar.TypeReg {
				h.Size = 0
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				w.Write([]byte(h.Name))
			}
		}
		w.Close()
		return &b
	}
	image := tar.Header{Name: "./boot/vmlinuz-1", Typeflag: tar.TypeReg}
	module := tar.Header{Name: "./lib/modules/1/x.ko", Typeflag: tar.TypeReg}
	link := tar.Header{Name: "./boot/vmlinuz-1", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}
	for _, tt := range []struct {
		name  string
		input *bytes.Buffer
		want  string
	}{
		{"there", pack(module, image), ""},
		{"missing", pack(module), "lacks 1 of 1"},
		{"a link", pack(link), "not a file"},
		{"not a tar", bytes.NewBufferString(strings.Repeat("x", 1024)), "invalid tar"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "vmlinuz")
			err := takeFiles(tt.input, map[string]string{"./boot/vmlinuz-1": to})
			if tt.want == "" && err == nil {
				if got, _ := os.ReadFile(to); string(got) != image.Name {
					t.Errorf("unpacked %q, want %q", got, image.Name)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestMissingToolsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Fetch(context.Background(), "6.1", t.TempDir())
	var missing *MissingToolError
	if !errors.As(err, &missing) || missing.Tool != "apt-cache" || !strings.Contains(err.Error(), "run this on Debian") {
		t.Errorf("Fetch without apt: %v", err)
	}
	_, err = Run(context.Background(), VM{Kernel: Kernel{Image: os.Args[0]}})
	if !errors.As(err, &missing) || missing.Tool != "qemu-system-x86_64" || !strings.Contains(err.Error(), `run "make deps"`) {
		t.Errorf("Run without qemu: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for _, series := range []string{"", "6", "6.1.0", "six", "6.1; rm"} {
		if _, err := Fetch(context.Background(), series, t.TempDir()); err == nil || !strings.Contains(err.Error(), "want two numbers") {
			t.Errorf("series %q: %v", series, err)
		}
	}
	if _, err := Run(context.Background(), VM{}); err == nil || !strings.Contains(err.Error(), "without a kernel image") {
		t.Errorf("Run without a kernel: %v", err)
	}
	if _, err := Run(context.Background(), VM{Commands: []string{"'"}}); err == nil || !strings.Contains(err.Error(), "open quote") {
		t.Errorf("Run of a bad command: %v", err)
	}
}
