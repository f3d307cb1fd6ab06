package proc

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRootFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), 'x')
	if err := os.Symlink("/proc/self/exe", filepath.Join(dir, "trap")); err != nil {
		t.Fatal(err)
	}
	file, err := FS{}.RootFile(os.Getpid(), filepath.Join(dir, "file"))
	if got := contents(t, file, err); got[0] != 'x' {
		t.Errorf("read %q", got[:1])
	}
	for _, path := range []string{dir, "/dev/null", filepath.Join(dir, "trap"), filepath.Join(dir, "missing")} {
		if file, err := (FS{}).RootFile(os.Getpid(), path); err == nil {
			file.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if _, err := (FS{}).RootFile(1<<30, "/etc/passwd"); err == nil {
		t.Error("a file of no process was opened")
	}
}
