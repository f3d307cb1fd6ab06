package php

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

func photograph(class, name, file string, kind, lines uint64) lang.Photograph {
	p := lang.Photograph{What: 7, Bytes: make([]byte, 2048)}
	p.Lengths = [4]uint32{uint32(len(class)), uint32(len(name)), uint32(len(file))}
	copy(p.Bytes[:nameBytes], class)
	copy(p.Bytes[nameBytes:fileAt], name)
	copy(p.Bytes[fileAt:], file)
	p.Values[valueType], p.Values[valueLines] = kind, lines
	return p
}

func TestAlbum(t *testing.T) {
	const user = 2
	for _, c := range []struct {
		name  string
		photo lang.Photograph
		where uint64
		want  string
		first int
	}{
		{"function", photograph("", `App\run`, "/a.php", user, 9<<32|5), 6, `App\run`, 5},
		{"method", photograph(`App\Tree`, "grow", "/a.php", user, 5), 6, `App\Tree::grow`, 5},
		{"closure of a method", photograph(`App\Tree`, `App\{closure}`, "/a.php", user, 5), 6, `App\Tree::{closure}`, 5},
		{"anonymous class", photograph("class@anonymous\x00/a.php:3$0", "grow", "/a.php", user, 5), 6, "class@anonymous::grow", 5},
		{"written in C", photograph("", "array_map", "", internal, 5), 0, "array_map", 0},
		{"program", photograph("", "", "/a.php", user, 1), isCode | isTop | 6, "{main}", 1},
		{"included", photograph("", "", "/lib/b.php", user, 1), isCode | 6, "include(b.php)", 1},
		{"eval", photograph("", "", "/a.php(3) : eval()'d code", 4, 1), isCode | 6, "eval", 1},
		{"too long", photograph("", strings.Repeat("x", 600), "/a.php", user, 1), 6, strings.Repeat("x", nameBytes) + "…", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a Album
			if got := a.Name(lang.Activation{What: 7}, nil); got != nil {
				t.Errorf("before the photograph: %+v", got)
			}
			a.Add(c.photo)
			got := a.Name(lang.Activation{What: 7, Where: c.where}, nil)
			if len(got) != 1 || got[0].Function != c.want || got[0].StartLine != c.first || got[0].Line != int(uint32(c.where)) {
				t.Errorf("%+v, not %s", got, c.want)
			}
		})
	}
}

func FuzzAlbum(f *testing.F) {
	f.Add([]byte("class\x00function"), uint32(5), uint32(8), uint32(600), uint64(2), uint64(1<<32))
	f.Fuzz(func(t *testing.T, raw []byte, class, name, file uint32, kind, where uint64) {
		var a Album
		p := lang.Photograph{Bytes: raw, Lengths: [4]uint32{class, name, file}}
		p.Values[valueType] = kind
		a.Add(p)
		got := a.Name(lang.Activation{Where: where}, nil)
		if len(got) != 1 || got[0].Function == "" && class|name == 0 || len(got[0].Function) > 2*len(raw)+64 {
			t.Errorf("%+v", got)
		}
	})
}

// TestFile reads the PHP of this machine as a file.
func TestFile(t *testing.T) {
	path, err := exec.LookPath("php8.2")
	if err != nil {
		t.Skip("no php8.2 here: make deps installs it")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	f, err := binfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !Holds(f) {
		t.Error("it does not hold PHP")
	}
	execute, _ := f.Exports().Lookup(executor)
	p, err := readFile(f)
	if err != nil {
		t.Fatal(err)
	}
	if p.Body <= execute.Address || p.Body > execute.Address+maxPrologue {
		t.Errorf("the body of %+v is at %#x", execute, p.Body)
	}
	for i, part := range p.Execute {
		if part.Start >= part.End {
			t.Errorf("execute_ex has its hot and its cold part, not %+v: %d", p.Execute, i)
		}
	}
}
