package proc

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mapped maps a file's first page into this process and returns the mapping.
func mapped(t *testing.T, path string) Mapping {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(page) })
	return find(t, os.Getpid(), filepath.Dir(path))
}

// find returns the executable mapping whose path holds name.
func find(t *testing.T, pid int, name string) Mapping {
	t.Helper()
	maps, err := FS{}.Executable(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if strings.Contains(m.Path, name) {
			return m
		}
	}
	t.Fatalf("process %d maps no %q: %+v", pid, name, maps)
	return Mapping{}
}

// contents reads what open opened.
func contents(t *testing.T, f *os.File, err error) []byte {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, fill byte) []byte {
	t.Helper()
	data := bytes.Repeat([]byte{fill}, 4096)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestMapFile opens a mapped file after its path came to mean something else,
// by map_files, which needs privilege, and without.
func TestMapFile(t *testing.T) {
	tests := []struct {
		name    string
		file    string
		change  func(t *testing.T, path string)
		without bool // reachable without map_files
	}{
		{"as it was", "lib.so", func(*testing.T, string) {}, true},
		{"spaces and newlines", "a b\nc.so", func(*testing.T, string) {}, true},
		{"what looks like an escape", `a\012c.so`, func(*testing.T, string) {}, true},
		{"what looks deleted", "lib.so (deleted)", func(*testing.T, string) {}, true},
		{"deleted", "lib.so", func(t *testing.T, p string) { os.Remove(p) }, false},
		{"replaced", "lib.so", func(t *testing.T, p string) { write(t, p+"2", 'b'); os.Rename(p+"2", p) }, false},
		{"replaced by a pipe", "lib.so", func(t *testing.T, p string) {
			os.Remove(p)
			if err := unix.Mkfifo(p, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"replaced by a loop", "lib.so", func(t *testing.T, p string) { os.Remove(p); os.Symlink(p, p) }, false},
		{"moved, with a link left behind", "lib.so", func(t *testing.T, p string) { os.Rename(p, p+"2"); os.Symlink(p+"2", p) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tt.file)
			want := write(t, path, 'a')
			m := mapped(t, path)
			tt.change(t, path)
			f, err := mappedFile{FS{}, os.Getpid(), m}.openByPath()
			if tt.without {
				if got := contents(t, f, err); !bytes.Equal(got, want) {
					t.Error("without map_files: another file")
				}
			} else if err == nil {
				t.Errorf("without map_files: opened %s", f.Name())
			}
			if unix.Geteuid() != 0 {
				return
			}
			f, err = FS{}.MapFile(os.Getpid(), m)
			if got := contents(t, f, err); !bytes.Equal(got, want) {
				t.Error("another file")
			}
		})
	}
}

// TestOpenOurs opens a path of our own namespace only for the very file.
func TestOpenOurs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	want := write(t, path, 'a')
	m := mapped(t, path)
	f, err := openOurs(m)
	if got := contents(t, f, err); !bytes.Equal(got, want) {
		t.Error("another file")
	}
	other := m
	other.Minor++ // the same path and inode on another device
	if _, err := openOurs(other); !errors.Is(err, ErrReplaced) {
		t.Errorf("a file of another device: %v", err)
	}
	os.Remove(path)
	write(t, path, 'b')
	if _, err := openOurs(m); err == nil {
		t.Error("opened what replaced it")
	}
}

func TestMapFileSaysTheWayOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	write(t, path, 'a')
	m := mapped(t, path)
	os.Remove(path)
	m.Start += 4096 // a place that map_files does not know
	_, err := FS{}.MapFile(os.Getpid(), m)
	if !errors.Is(err, ErrReplaced) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "CAP_CHECKPOINT_RESTORE") {
		t.Error(err)
	}
	if _, err := (FS{}).MapFile(os.Getpid(), Mapping{Path: "[heap]"}); err == nil || !strings.Contains(err.Error(), `"[heap]"`) {
		t.Error(err)
	}
}

// TestPrograms opens programs that have no path, or not the one they had.
func TestPrograms(t *testing.T) {
	want, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		run     func(t *testing.T) int
		backing Backing
		deleted bool
	}{
		{"memfd", func(t *testing.T) int {
			fd, err := unix.MemfdCreate("cat in memory", unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			f := os.NewFile(uintptr(fd), "memfd")
			defer f.Close()
			if _, err := f.Write(want); err != nil {
				t.Fatal(err)
			}
			return start(t, exec.Command("/proc/self/fd/"+strconv.Itoa(fd)))
		}, BackingMemfd, true},
		{"deleted", func(t *testing.T) int {
			path := filepath.Join(t.TempDir(), "cat")
			pid := cat(t, path)
			os.Remove(path)
			return pid
		}, BackingFile, true},
		{"replaced", func(t *testing.T) int {
			path := filepath.Join(t.TempDir(), "cat")
			pid := cat(t, path)
			copyFile(t, "/bin/sh", path+"2")
			os.Rename(path+"2", path)
			return pid
		}, BackingFile, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pid := tt.run(t)
			m := find(t, pid, "cat")
			if m.Backing != tt.backing || m.Deleted != tt.deleted {
				t.Errorf("%+v", m)
			}
			for name, open := range map[string]func(int, Mapping) (*os.File, error){"MapFile": FS{}.MapFile, "without map_files": func(pid int, m Mapping) (*os.File, error) { return mappedFile{FS{}, pid, m}.openByPath() }} {
				f, err := open(pid, m)
				if got := contents(t, f, err); !bytes.Equal(got, want) {
					t.Errorf("%s: another file", name)
				}
			}
			exe, err := FS{}.Exe(pid)
			if err != nil || exe.Deleted != tt.deleted || exe.Path != m.Path {
				t.Errorf("Exe: %+v, %v, mapped as %q", exe, err, m.Path)
			}
		})
	}
}

// TestOtherMountNamespace runs a program from a file system only its own
// namespace has mounted, beside a decoy at the same path in ours.
func TestOtherMountNamespace(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root, to unshare a mount namespace: make test-root")
	}
	dir := t.TempDir()
	copyFile(t, "/bin/sh", filepath.Join(dir, "program"))
	pid := start(t, exec.Command("unshare", "--mount", "--propagation=private", "/bin/sh", "-c",
		`mount -t tmpfs none "$0" && cp /bin/cat "$0/program" && cp /bin/cat "$0/lib" && exec "$0/program"`, dir))
	ours, err := FS{}.Namespace(os.Getpid(), "mnt")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := FS{}.Namespace(pid, "mnt")
	if err != nil || theirs == ours || theirs == 0 {
		t.Errorf("mount namespaces %d and %d, %v", ours, theirs, err)
	}
	want, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	m := find(t, pid, "program")
	f, err := FS{}.MapFile(pid, m)
	if got := contents(t, f, err); !bytes.Equal(got, want) {
		t.Error("MapFile: another file")
	}
	if m.Path != filepath.Join(dir, "program") {
		t.Errorf("path %q", m.Path)
	}

	// The path alone, as for a library: "lib" exists there and not here.
	lib := m
	lib.Path = filepath.Join(dir, "lib")
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join("/proc", strconv.Itoa(pid), "root", lib.Path), &st); err != nil {
		t.Fatal(err)
	}
	lib.Inode = st.Ino
	f, err = mappedFile{FS{}, pid, lib}.openByPath()
	if got := contents(t, f, err); !bytes.Equal(got, want) {
		t.Error("by path: another file")
	}
	// An absolute link in its tree means its root, not ours.
	if _, err := (mappedFile{FS{}, os.Getpid(), lib}).openByPath(); err == nil {
		t.Error("the same path here passed for the file there")
	}
}

func TestVDSO(t *testing.T) {
	image, m, err := FS{}.VDSO(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if uint64(len(image)) != m.End-m.Start || m.Backing != BackingVDSO {
		t.Errorf("%d bytes of %+v", len(image), m)
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return
		}
	}
	t.Errorf("no __vdso_clock_gettime among %d symbols", len(symbols))
}

// TestStatMapped tells of each file that this process maps what opening it tells.
func TestStatMapped(t *testing.T) {
	pid := os.Getpid()
	maps, err := FS{}.Maps(pid)
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, m := range maps {
		st, err := FS{}.StatMapped(pid, m)
		if !m.HasFile() {
			if err == nil {
				t.Errorf("%q has no file, and is told of: %+v", m.Path, st)
			}
			continue
		}
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			t.Skip("needs CAP_CHECKPOINT_RESTORE")
		}
		file, openErr := FS{}.MapFile(pid, m)
		if err != nil || openErr != nil {
			t.Errorf("%q: %v, %v", m.Path, err, openErr)
			continue
		}
		var want unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &want); err != nil {
			t.Fatal(err)
		}
		file.Close()
		if st.Dev != want.Dev || st.Ino != want.Ino || st.Mtim != want.Mtim || st.Size != want.Size {
			t.Errorf("%q: %+v, want %+v", m.Path, st, want)
		}
		same++
	}
	if same == 0 {
		t.Error("no file is mapped")
	}
}
