package perl

import (
	"os/exec"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

func photograph(stash, name, file string, kind, line, operation uint64) lang.Photograph {
	p := lang.Photograph{What: 7, Bytes: make([]byte, 2048)}
	p.Lengths = [4]uint32{uint32(len(stash)), uint32(len(name)), uint32(len(file))}
	copy(p.Bytes[:nameBytes], stash)
	copy(p.Bytes[nameBytes:fileAt], name)
	copy(p.Bytes[fileAt:], file)
	p.Values[valueKind], p.Values[valueStartLine], p.Values[valueOperation] = kind, line, operation
	return p
}

func TestAlbum(t *testing.T) {
	const kindMain = 2
	for _, c := range []struct {
		photo      lang.Photograph
		want, file string
	}{
		{photograph("App::Tree", "grow", "/a.pl", kindSub, 5, 0), "App::Tree::grow", "/a.pl"},
		{photograph("main", "__ANON__", "/lib/a.pl", kindSub, 5, 0), "main::__ANON__[a.pl:5]", "/lib/a.pl"},
		{photograph("main", "", "/lib/a.pl", kindSub, 0, 0), "main::__ANON__", "/lib/a.pl"},
		{photograph("", "grow", "/a.pl", kindSub, 5, 0), "__ANON__::grow", "/a.pl"},
		{photograph("main", "made", "(eval 4711)", kindSub, 1, 0), "main::made", "(eval)"},
		{photograph("", "", "(eval 12)", kindEval, 0, 345), "(eval)", "(eval)"},
		{photograph("", "A/B.pm", "/a.pl", kindEval, 0, operationRequire), "require A/B.pm", "/a.pl"},
		{photograph("", "", "/a.pl", kindEval, 0, operationRequire), "require", "/a.pl"},
		{photograph("", "conf.pl", "/a.pl", kindEval, 0, operationDo), "do conf.pl", "/a.pl"},
		{photograph("", "", "/a.pl", kindMain, 0, 0), "(main program)", "/a.pl"},
	} {
		var a Album
		if got := a.Name(lang.Activation{What: 7}, nil); got != nil {
			t.Errorf("before the photograph: %+v", got)
		}
		a.Add(c.photo)
		got := a.Name(lang.Activation{What: 7, Where: 9}, nil)
		if len(got) != 1 || got[0].Function != c.want || got[0].File != c.file || got[0].Line != 9 {
			t.Errorf("%+v, not %s in %s", got, c.want, c.file)
		}
	}
}

func FuzzAlbum(f *testing.F) {
	f.Add([]byte("main\x00sub"), uint32(5), uint32(8), uint32(600), uint64(1), uint64(342))
	f.Fuzz(func(t *testing.T, raw []byte, stash, name, file uint32, kind, operation uint64) {
		var a Album
		p := lang.Photograph{Bytes: raw, Lengths: [4]uint32{stash, name, file}}
		p.Values[valueKind], p.Values[valueOperation] = kind, operation
		a.Add(p)
		got := a.Name(lang.Activation{}, nil)
		if len(got) != 1 || got[0].Function == "" || len(got[0].Function) > 3*len(raw)+64 {
			t.Errorf("%+v", got)
		}
	})
}

// TestFile reads the Perl of this machine as a file.
func TestFile(t *testing.T) {
	path, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("no perl here")
	}
	f, err := binfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !Holds(f) {
		t.Skip("this perl is a small program that loads libperl")
	}
	out, err := exec.Command(path, "-e", "print $^V").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, err = readFile(f)
	switch version := strings.TrimPrefix(string(out), "v"); {
	case strings.HasPrefix(version, "5.36."):
		if err != nil {
			t.Error(err)
		}
	case err == nil || !strings.Contains(err.Error(), version):
		t.Errorf("version %s: %v", version, err)
	}
}
