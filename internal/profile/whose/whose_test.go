package whose_test

import (
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/corpus"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/folded"
	"atys.dev/atys/internal/profile/perfscript"
	"atys.dev/atys/internal/profile/pprof"
	"atys.dev/atys/internal/profile/whose"
)

const (
	app     = profile.ClassApplication
	lib     = profile.ClassLibrary
	runtime = profile.ClassRuntime
	kernel  = profile.ClassKernel
	unknown = profile.ClassUnknown
)

// expected is what atys's own rules say of a frame.
type expected struct {
	kind                    profile.Kind
	function, file, mapping string
	want                    profile.Class
}

func (e expected) check(t *testing.T, c *whose.Classifier) {
	t.Helper()
	f := profile.Frame{Function: e.function, File: e.file, Mapping: e.mapping, Kind: e.kind}
	if got := c.Class(f); got != e.want {
		t.Errorf("%s %s (%s, %s): %s, want %s", f.Kind, f.Function, f.File, f.Mapping, got, e.want)
	}
}

func TestCompiledLanguages(t *testing.T) {
	c := whose.New(nil)
	for _, test := range []expected{
		{profile.KindKernel, "do_syscall_64", "", "[kernel.kallsyms]", kernel},

		// C, C++, Rust
		{profile.KindNative, "main", "src/main.c", "/srv/shop", app},
		{profile.KindNative, "main", "", "/srv/web shop (deleted)", app},
		{profile.KindNative, "main", "", "/usr/bin/grep", app},
		{profile.KindNative, "price", "", "/srv/shop/libprice.so", app},
		{profile.KindNative, "_start", "", "/srv/shop", lib},
		{profile.KindNative, "memcpy", "", "/usr/lib/x86_64-linux-gnu/libc.so.6", lib},
		{profile.KindNative, "memcpy", "", "/usr/lib/x86_64-linux-gnu/libc.so.6 (deleted)", lib},
		{profile.KindNative, "dgemm", "", "/opt/conda/lib/libopenblas.so.0", lib},
		{profile.KindNative, "dgemm", "", "/usr/local/lib/libblas.so", lib},
		{profile.KindNative, "_dl_relocate", "", "/lib64/ld-linux-x86-64.so.2", lib},
		{profile.KindNative, "__vdso_clock_gettime", "", "[vdso]", lib},
		{profile.KindNative, "[stack]+0x10", "", "[stack]", unknown},
		{profile.KindNative, "?", "", "", unknown},
		{profile.KindNative, "std::vector<int>::push_back(int&&)", "/usr/include/c++/12/bits/vector.tcc", "/srv/shop", lib},
		{profile.KindNative, "<alloc::vec::Vec<T> as core::clone::Clone>::clone", "/rustc/9fc6b43126469e3858e2fe86cafb4f0fd5068869/library/alloc/src/vec/mod.rs", "/srv/shop", runtime},
		{profile.KindNative, "serde_json::from_str", "/home/a/.cargo/registry/src/index.crates.io-6f17d22bba15001f/serde_json-1.0.1/src/de.rs", "/srv/shop", lib},
		{profile.KindNative, "shop::cart::add", "src/cart.rs", "/srv/shop", app},

		// Go
		{profile.KindNative, "main.main", "/src/shop/main.go", "/srv/shop", app},
		{profile.KindNative, "example.com/shop/log.Print", "/src/shop/log/log.go", "/srv/shop", app},
		{profile.KindNative, "net/http.(*conn).serve", "/usr/local/go/src/net/http/server.go", "/srv/shop", runtime},
		{profile.KindNative, "runtime.mallocgc", "runtime/malloc.go", "/srv/shop", runtime},
		{profile.KindNative, "memeqbody", "/usr/local/go/src/internal/bytealg/equal_amd64.s", "/srv/shop", runtime},
		{profile.KindNative, "runtime.mallocgc", "/home/a/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.24.1.linux-amd64/src/runtime/malloc.go", "/srv/shop", runtime},
		{profile.KindNative, "google.golang.org/grpc.(*Server).Serve", "/home/a/go/pkg/mod/google.golang.org/grpc@v1.60.0/server.go", "/srv/shop", lib},
		{profile.KindNative, "github.com/spf13/cobra.(*Command).Execute", "github.com/spf13/cobra@v1.8.0/command.go", "/srv/shop", lib},
		{profile.KindNative, "github.com/lib/pq.Open", "/src/shop/vendor/github.com/lib/pq/conn.go", "/srv/shop", lib},
		{profile.KindNative, "slices.SortFunc[...]", "/usr/local/go/src/slices/sort.go", "/srv/shop", runtime},
		{profile.KindNative, "networking.Dial", "/src/networking/dial.go", "/srv/shop", app},
		{profile.KindNative, "log", "/src/log.c", "/srv/shop", app},
	} {
		test.check(t, c)
	}
}

func TestLanguagesWithARuntime(t *testing.T) {
	c := whose.New(nil)
	for _, test := range []expected{
		// Python
		{profile.KindPython, "serve", "/srv/shop/app.py", "/srv/shop/app.py", app},
		{profile.KindPython, "View.dispatch", "/srv/venv/lib/python3.11/site-packages/django/views.py", "", lib},
		{profile.KindPython, "apt.Cache", "/usr/lib/python3/dist-packages/apt/cache.py", "", lib},
		{profile.KindPython, "JSONDecoder.decode", "/root/.pyenv/versions/3.12.1/lib/python3.12/json/decoder.py", "", lib},
		{profile.KindPython, "_find_and_load", "<frozen importlib._bootstrap>", "", runtime},
		{profile.KindPython, "list", "", "", runtime},
		{profile.KindNative, "_PyEval_EvalFrameDefault", "Python/ceval.c", "/usr/bin/python3.11", runtime},
		{profile.KindNative, "_PyEval_EvalFrameDefault", "", "/usr/local/lib/libpython3.12.so.1.0", runtime},
		{profile.KindNative, "DOUBLE_add", "", "/srv/venv/lib/python3.11/site-packages/numpy/core/_multiarray_umath.so", lib},
		{profile.KindNative, "json_scan", "", "/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so", lib},
		{profile.KindUnknown, "serve (/srv/shop.py:10)", "", "", app},
		{profile.KindUnknown, "loads (/usr/lib/python3.11/json/__init__.py:346)", "", "", lib},
		{profile.KindUnknown, "_find_and_load (<frozen importlib._bootstrap>:1176)", "", "", runtime},
		{profile.KindJIT, "py::serve:/srv/shop.py", "", "[jit]", app},

		// The JVM
		{profile.KindJavaCompiled, "com.shop.Cart.add", "Cart.java", "", app},
		{profile.KindJavaCompiled, "org.apache.tomcat.Worker.run", "Worker.java", "", app},
		{profile.KindJavaInterpreted, "java.util.HashMap.get", "HashMap.java", "", runtime},
		{profile.KindJavaInterpreted, "javafx.Scene.draw", "Scene.java", "", app},
		{profile.KindJavaCompiled, "jdk.internal.misc.Unsafe.park", "", "", runtime},
		{profile.KindJavaCompiled, "com.sun.net.httpserver.Chain.doFilter", "", "", runtime},
		{profile.KindJavaCompiled, "com.sunshine.Day.begin", "", "", app},
		{profile.KindJavaCompiled, "com.shop.Main$$Lambda/0x0000000800c03000.run", "", "", app},
		{profile.KindJavaCompiled, "kotlin.collections.CollectionsKt.map", "", "", lib},
		{profile.KindJIT, "java/lang/Thread.run", "", "", runtime},
		{profile.KindUnknown, "java/lang/Thread.run", "", "", runtime},
		{profile.KindJIT, "Interpreter", "", "[jit]", runtime},
		{profile.KindNative, "G1ParScanThreadState::trim_queue", "", "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", runtime},
		{profile.KindNative, "inflate", "", "/opt/java/lib/libzip.so", runtime},

		// JavaScript
		{profile.KindV8, "handle", "file:///srv/shop/server.js", "", app},
		{profile.KindV8, "handle", "/srv/shop/node_modules/express/lib/router.js", "", lib},
		{profile.KindV8, "processTimers", "node:internal/timers", "", runtime},
		{profile.KindV8, "ArrayMap", "", "", runtime},
		{profile.KindNative, "v8::internal::Heap::Scavenge()", "", "/usr/bin/node", runtime},
		{profile.KindNative, "bcrypt", "", "/srv/shop/node_modules/bcrypt/build/Release/bcrypt.node", lib},
		{profile.KindJIT, "JS:*serve /srv/shop/server.js:3:14", "", "[jit]", app},
		{profile.KindJIT, "LazyCompile:~next /srv/shop/node_modules/express/lib/router.js:3:14", "", "[jit]", lib},
		{profile.KindJIT, "Builtin:ArrayMap", "", "[jit]", runtime},
		{profile.KindJIT, "[code made at run time]", "", "", unknown},
		{profile.KindJIT, "[unknown]+0x10", "", "", unknown},

		// Others
		{profile.KindRuby, "Cart#add", "/srv/shop/cart.rb", "", app},
		{profile.KindRuby, "Rack::Server#call", "/var/lib/gems/3.1.0/gems/rack-2.2/lib/rack.rb", "", lib},
		{profile.KindRuby, "JSON.parse", "/usr/lib/ruby/3.1.0/json/common.rb", "", lib},
		{profile.KindRuby, "Kernel#loop", "<internal:kernel>", "", runtime},
		{profile.KindRuby, "Integer#times", "", "", runtime},
		{profile.KindPHP, "Cart::add", "/srv/shop/cart.php", "", app},
		{profile.KindPHP, "Twig\\Template::render", "/srv/shop/vendor/twig/twig/src/Template.php", "", lib},
		{profile.KindPython, "list", "/srv/shop/vendor/views.py", "", app},
		{profile.KindPHP, "strlen", "", "", runtime},
		{profile.KindPerl, "Cart::add", "/srv/shop/Cart.pm", "", app},
		{profile.KindPerl, "List::Util::first", "/usr/lib/x86_64-linux-gnu/perl/5.36/List/Util.pm", "", lib},
		{profile.KindDotNet, "Shop.Cart.Add", "", "shop.dll", app},
		{profile.KindDotNet, "System.String.Concat", "", "System.Private.CoreLib.dll", runtime},
		{profile.KindBEAM, "lists:map/2", "/usr/lib/erlang/lib/stdlib-4.2/ebin/lists.beam", "", runtime},
		{profile.KindBEAM, "shop:add/2", "/srv/shop/ebin/shop.beam", "", app},
		{profile.KindUnknown, "main", "", "", unknown},
		{profile.KindUnknown, "handle", "/srv/shop/server.js", "", app},
	} {
		test.check(t, c)
	}
}

func TestUsersRulesWin(t *testing.T) {
	rules, err := whose.Parse(`# ours
application file     /srv/venv/lib/python3.11/site-packages/shop/
library     package  com.acme org.other::inner.  # not of this team
library     binary   "/srv/web shop" libfrob.so
application binary   *
runtime     function ^helper_[0-9]+$
library     kind     perl
kernel      go       example.com/driver
runtime     dotnet   Acme.Host
`)
	if err != nil {
		t.Fatal(err)
	}
	c := whose.New(rules)
	for _, test := range []struct {
		frame profile.Frame
		want  profile.Class
	}{
		{profile.Frame{Kind: profile.KindPython, File: "/srv/venv/lib/python3.11/site-packages/shop/a.py"}, app},
		{profile.Frame{Kind: profile.KindPython, File: "/srv/venv/lib/python3.11/site-packages/shopping/a.py"}, lib},
		{profile.Frame{Kind: profile.KindJavaCompiled, Function: "com.acme.A.b"}, lib},
		{profile.Frame{Kind: profile.KindJavaCompiled, Function: "com.acmeother.A.b"}, app},
		{profile.Frame{Kind: profile.KindNative, Function: "std::pair<int> org.other::inner::f()", Mapping: "/x"}, lib},
		{profile.Frame{Kind: profile.KindNative, Function: "f", Mapping: "/srv/web shop"}, lib},
		{profile.Frame{Kind: profile.KindNative, Function: "f", Mapping: "/anywhere/libfrob.so"}, lib},
		{profile.Frame{Kind: profile.KindNative, Function: "f", Mapping: "/usr/lib/libc.so.6"}, app},
		{profile.Frame{Kind: profile.KindNative, Function: "helper_12"}, runtime},
		{profile.Frame{Kind: profile.KindPerl, Function: "f", File: "/a.pl"}, lib},
		{profile.Frame{Kind: profile.KindNative, Function: "example.com/driver.Load", File: "/d.go"}, kernel},
		{profile.Frame{Kind: profile.KindDotNet, Function: "Acme.Host.Run"}, runtime},
		// What the file recorded stands between the user's rules and the builtin ones.
		{profile.Frame{Kind: profile.KindPython, File: "/srv/a.py", Class: lib}, lib},
		{profile.Frame{Kind: profile.KindPerl, Function: "f", Class: app}, lib},
	} {
		if got := c.Class(test.frame); got != test.want {
			t.Errorf("%+v: %s, want %s", test.frame, got, test.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"\n# x\naplication file /a":                    `line 3: class "aplication": want application, library, runtime or kernel`,
		"library":                                      `line 1: library: what? want a matcher (file, binary, function, package, go, java, dotnet or kind) and patterns`,
		"library path /a":                              `line 1: matcher "path": want file, binary, function, package, go, java, dotnet or kind`,
		"library file":                                 `line 1: library file: no pattern follows`,
		"library file # /a":                            `line 1: library file: no pattern follows`,
		"library file \"/a b":                          `line 1: a quote has no end`,
		"library file \"/a\"b":                         `line 1: "/a": a space must follow the quote`,
		"library file /a\"b\"":                         `line 1: "/a\"b\"": a quote begins inside`,
		"library file \"\"":                            `line 1: file "": an empty pattern`,
		"library package ::":                           `line 1: package "::": an empty pattern`,
		"library function (":                           "line 1: function \"(\": error parsing regexp",
		"library kind cobol":                           `line 1: kind "cobol": no such kind`,
		"library file " + strings.Repeat("a", 1001):    "longer than 1000 bytes",
		strings.Repeat("kernel kind kernel\n", 10_001): "line 10001: more than 10000 rules",
		"library file \xff":                            "this is no text",
		"a\x00b":                                       "this is no text",
	} {
		if _, err := whose.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if r, err := whose.Parse(""); err != nil || r.String() != "" {
		t.Errorf("an empty file: %v, %v", r, err)
	}
}

// The rules that come with atys say of a name what they say of it elsewhere:
// no folder that holds the program makes it a library.
func TestAnyHomeIsTheApplications(t *testing.T) {
	c := whose.New(nil)
	for _, home := range []string{"/", "/srv/", "/app/", "/home/python3/", "/opt/node/", "/data/vendor/", "/src/runtime/", "/usr/src/app/"} {
		for _, f := range []profile.Frame{
			{Kind: profile.KindNative, Function: "main", Mapping: home + "shop"},
			{Kind: profile.KindPython, Function: "main", File: home + "shop.py"},
			{Kind: profile.KindV8, Function: "main", File: home + "shop.js"},
			{Kind: profile.KindNative, Function: "main.main", File: home + "main.go", Mapping: home + "shop"},
		} {
			if got := c.Class(f); got != app {
				t.Errorf("%+v: %s", f, got)
			}
		}
	}
}

// Real profiles of every tool whose files are at hand: functions whose class is known.
func TestCorpus(t *testing.T) {
	for name, want := range map[string]map[string]profile.Class{
		"pprof/go-cpu.pb.gz": {"main.inner": app, "main.main": app, "runtime.main": runtime, "cmpbody": runtime, "slices.partitionOrdered[go.shape.string]": runtime},
		"perf/default.txt":   {"basket": app, "start_thread": lib, "handle_mm_fault": kernel},
		"folded/py-spy.txt":  {"serve (shop.py:10)": app, "_find_and_load (<frozen importlib._bootstrap>:1176)": runtime},
	} {
		w := whose.New(nil).Window(read(t, name))
		got := map[string]profile.Class{}
		for i := range w.Locations {
			for _, f := range w.Frames(profile.LocationID(i)) {
				got[f.Function] = f.Class
			}
		}
		for function, class := range want {
			if c, ok := got[function]; !ok || c != class {
				t.Errorf("%s: %s is %s (there: %v), want %s", name, function, c, ok, class)
			}
		}
	}
}

func read(t *testing.T, name string) *profile.Window {
	t.Helper()
	var w *profile.Window
	var err error
	switch r := strings.NewReader(string(corpus.Read(name))); filepath.Dir(name) {
	case "pprof":
		w, err = pprof.Read(r)
	case "perf":
		w, err = perfscript.Read(r)
	default:
		w, err = folded.Read(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWindowLeavesTheOldOneAlone(t *testing.T) {
	b := profile.NewBuilder(profile.Head{})
	named := b.Named(profile.Frame{Function: "java.lang.Thread.run", Kind: profile.KindJavaCompiled})
	nameless := b.Location(profile.Location{Kind: profile.KindNative, BuildID: "0123abcd", Offset: 16})
	interned := b.Location(profile.Location{Kind: profile.KindKernel, Name: "f"})
	w := b.Window()
	classed := whose.New(nil).Window(w)
	for id, want := range map[profile.LocationID]profile.Class{named: runtime, nameless: unknown, interned: kernel} {
		if got := classed.Frames(id)[0].Class; got != want {
			t.Errorf("location %d: %s, want %s", id, got, want)
		}
		if w.Frames(id)[0].Class != unknown {
			t.Errorf("location %d of the old window was changed", id)
		}
	}
}

func BenchmarkWindow(b *testing.B) {
	builder := profile.NewBuilder(profile.Head{})
	for i := range 10_000 {
		name := strings.Repeat("x", i%97) + "f"
		builder.Named(profile.Frame{Function: name, File: "/srv/shop/" + name + ".py", Line: i, Kind: profile.KindPython})
	}
	w := builder.Window()
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			whose.New(nil).Window(w)
		}
	})
	b.Run("again", func(b *testing.B) {
		c := whose.New(nil)
		for b.Loop() {
			c.Window(w)
		}
	})
}
