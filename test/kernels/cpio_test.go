package kernels

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestArchiveEqualsGNU(t *testing.T) {
	want, err := os.ReadFile("testdata/gnu.cpio")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	a := newArchive(&got)
	for _, m := range []struct {
		member
		data string
	}{
		{member{name: "bin", mode: modeDir | 0o755}, ""},
		{member{name: "bin/a", mode: modeFile | 0o755}, "hello"},
		{member{name: "bin/b", mode: modeFile | 0o644}, "12345678"},
		{member{name: "bin/cat", mode: modeLink | 0o777}, "/init"},
		{member{name: "console", mode: modeChar | 0o600, major: 5, minor: 1}, ""},
	} {
		m.size = int64(len(m.data))
		if err := a.add(m.member, strings.NewReader(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	size, err := a.close()
	if err != nil {
		t.Fatal(err)
	}
	if size != int64(got.Len()) {
		t.Errorf("close returned %d, wrote %d bytes", size, got.Len())
	}
	got.Write(make([]byte, max(0, len(want)-got.Len())))
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("archive differs from GNU cpio's:\n%q\nwant\n%q", got.Bytes(), want)
	}
}

func TestArchiveRefuses(t *testing.T) {
	a := newArchive(&bytes.Buffer{})
	if err := a.add(member{name: "big", size: 1 << 32}, nil); err == nil {
		t.Error("a member of 4 GiB was taken; its size does not fit the header")
	}
	if err := a.add(member{name: "short", size: 5}, strings.NewReader("abc")); err == nil {
		t.Error("a file that shrank while it was packed was taken")
	}
}
