package kernels

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackImage(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!"), 0o755); err != nil {
		t.Fatal(err)
	}
	var image bytes.Buffer
	files := map[string]string{"/opt/a/b/program": program, "/bin/cat": program}
	if _, err := packImage(&image, program, files, Script{}); err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, name := range []string{"dev", "dev/console", "init", "opt", "opt/a", "opt/a/b", "opt/a/b/program"} {
		next := bytes.Index(image.Bytes(), []byte(name+"\x00"))
		if next < 0 || next < at {
			t.Errorf("member %q at %d, want it after its parent at %d", name, next, at)
		}
		at = next
	}
	if n := bytes.Count(image.Bytes(), []byte("bin/cat\x00")); n != 1 {
		t.Errorf("bin/cat is there %d times: a given file replaces the applet", n)
	}
}

func TestPackImageRefuses(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	// cat is dynamically linked on every Debian.
	const dynamic = "/bin/cat"
	for _, tt := range []struct{ name, to, from, want string }{
		{"relative", "bin/x", plain, "clean absolute"},
		{"unclean", "/bin/../x", plain, "clean absolute"},
		{"trailing slash", "/bin/", plain, "clean absolute"},
		{"root", "/", plain, "clean absolute"},
		{"init", "/init", plain, "taken by the machine"},
		{"script", "/script.json", plain, "taken by the machine"},
		{"hidden", "/tmp/x", plain, "hidden by the mount on /tmp/"},
		{"nul", "/a\x00b", plain, "NUL"},
		{"missing", "/x", filepath.Join(dir, "none"), "no such file"},
		{"folder", "/x", dir, "not a regular file"},
		{"dynamic", "/bin/x", dynamic, "link it statically"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := packImage(&bytes.Buffer{}, plain, map[string]string{tt.to: tt.from}, Script{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
