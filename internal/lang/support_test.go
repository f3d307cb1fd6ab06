package lang

import (
	"bytes"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
)

// TestSupport holds every kind of runtime to a row, and what is not walked to
// a reason.
func TestSupport(t *testing.T) {
	rows := map[Kind]bool{}
	for _, s := range supported() {
		if rows[s.kind] {
			t.Errorf("%s stands twice", s.kind)
		}
		rows[s.kind] = true
		if s.name == "" || s.never != "" && s.ready {
			t.Errorf("%+v: without a name, or both ready and never", s)
		}
		if walked, why := Support(Runtime{Kind: s.kind}); !walked && why == "" {
			t.Errorf("%s is not walked and nothing says why", s.kind)
		}
	}
	for _, r := range recognisers() {
		if len(r.symbols) == 0 {
			t.Error("a runtime without symbols to know it by")
		}
	}
	for _, n := range named {
		if !rows[n.kind] {
			t.Errorf("%s is told by name and has no row", n.kind)
		}
	}
	if walked, why := Support(Runtime{Kind: "cobol"}); walked || why == "" {
		t.Errorf("an unknown kind: %v, %q", walked, why)
	}
}

// TestSpan compares versions as numbers, and names the ends of what is covered.
func TestSpan(t *testing.T) {
	s := support{kind: Python, name: "Python", from: [2]int{3, 6}, to: [2]int{3, 14}, ready: true}
	for version, want := range map[string]bool{"3.5.9": false, "3.6.0": true, "3.10": true, "3.14.2": true, "3.15.0": false, "2.7.18": false, "4.0": false} {
		if walked, why := s.check(Runtime{Kind: Python, Version: version}); walked != want || !want && !strings.Contains(why, "3.6 to 3.14") {
			t.Errorf("%s: %v, %q; want %v", version, walked, why, want)
		}
	}
	java := support{name: "Java", from: [2]int{8, 0}, to: [2]int{25, 99}, ready: true}
	for version, want := range map[string]bool{"7.0.80": false, "8.0.272": true, "25.0.3": true, "26": false, "": false} {
		if walked, why := java.check(Runtime{Version: version}); walked != want || !want && why == "" {
			t.Errorf("Java %s: %v, %q; want %v", version, walked, why, want)
		}
	}
	java.tested = []string{"11", "17", "21", "25"}
	for version, want := range map[string]bool{"8.0.272": true, "10.0.2": true, "22.0.1": true, "11.0.13": false, "25.0.3": false} {
		if walked, why := java.check(Runtime{Version: version}); !walked || strings.Contains(why, "untested") != want {
			t.Errorf("Java %s: %v, %q; untested %v", version, walked, why, want)
		}
	}
	dotnet := support{name: ".NET", from: [2]int{3, 0}, to: [2]int{3, 1}, tested: []string{"3.1"}, lacks: "names", ready: true}
	for version, want := range map[string]string{"3.0.3": ".NET 3.0.3 is walked by what it tells of itself, but untested; names", "3.1.23": "names"} {
		if walked, why := dotnet.check(Runtime{Version: version}); !walked || why != want {
			t.Errorf(".NET %s: %q, want %q", version, why, want)
		}
	}
	if got := java.span(); got != "8 to 25" {
		t.Errorf("%q", got)
	}
}

// TestTold gives readers of languages what Detect tells, and its refusals.
func TestTold(t *testing.T) {
	for _, c := range []struct {
		name string
		file library
		at   string
		kind Kind
		want string // version, or a part of why not
	}{
		{"by a string", python("/usr/lib/python3.9\x003.9.2+\x00"), "/bin/uwsgi", Python, "3.9.2"},
		{"by a directory alone", python("lib\x00python3.10\x003.10.4\x00"), "/bin/uwsgi", Python, "3.10.4"},
		{"by its name", python(""), "/usr/bin/python3.8", Python, "3.8"},
		{"by nothing", python(""), "/usr/bin/python3", Python, "Python of unknown version"},
		{"another kind", python("\x003.8.18\x00"), "/usr/bin/python3.8", Ruby, "it is no ruby"},
		{"too new", python("\x003.15.0\x00"), "/usr/bin/python3.15", Python, "Python 3.15.0 is not supported"},
		{"PHP", exporting("X-Powered-By: PHP/8.2.1\x00", "php_request_startup", "execute_ex", "executor_globals"), "", PHP, "8.2.1"},
		{"ZTS", exporting("X-Powered-By: PHP/8.2.1\x00", "php_request_startup", "execute_ex"), "", PHP, "(ZTS) is not supported"},
		{"without ithreads", exporting("v5.36.0\x00", "perl_run", "Perl_runops_standard"), "", Perl, "(ithreads) is not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := c.file.bytes()
			f, err := binfile.New(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			r, err := Told(f, c.at, c.kind)
			if err == nil && r.Version != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want %s", r, err, c.want)
			}
		})
	}
}

func TestPythonName(t *testing.T) {
	for name, want := range map[string]string{
		"python3.11": "3.11", "libpython3.6m.so.1.0": "3.6", "libpython3.9.so": "3.9", "libpython3.10.so.1.0": "3.10", "python3.8d": "3.8", "libpython2.7.so.1.0": "2.7",
		"python3": "", "python": "", "libpython3.so": "", "xpython3.9": "", "python3.110": "",
	} {
		m := pythonName.FindStringSubmatch(name)
		if got := append(m, "", "")[1]; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestV8Tables finds builtins by the calls that tell them, of each form that
// compilers give these.
func TestV8Tables(t *testing.T) {
	for _, c := range []struct {
		name       string
		code, size string
		want       bool
	}{
		{"constants", "\xb8\x40\x00\x00\x00\xc3\x00\x00", "\xb8\x00\x10\x00\x00\xc3\x00\x00", true},
		{"an address", "\x48\x8d\x05\x00\x00\x00\x00\xc3", "\xb8\x00\x10\x00\x00\xc3\x00\x00", true},
		{"a variable", "\xb8\x40\x00\x00\x00\xc3\x00\x00", "\x8b\x05\x02\x00\x00\x00\xc3\x00\x00\x10\x00\x00", true},
		{"other code", "\x55\x48\x89\xe5\x00\x00\x00\x00", "\xb8\x00\x10\x00\x00\xc3\x00\x00", false},
		{"outside of the file", "\xb8\x00\x00\x00\x70\xc3\x00\x00", "\xb8\x00\x10\x00\x00\xc3\x00\x00", false},
		{"of no size", "\xb8\x40\x00\x00\x00\xc3\x00\x00", "\xb8\x00\x00\x00\x00\xc3\x00\x00", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := exporting("").with(v8CodeCall, c.code).with(v8SizeCall, c.size).bytes()
			f, err := binfile.New(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			if tables, err := FindV8Tables(f); (err == nil) != c.want || c.want && tables.BuiltinsSize != 4096 {
				t.Errorf("%+v, %v", tables, err)
			}
		})
	}
}
