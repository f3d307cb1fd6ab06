package lang

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const jvm8 = "\x00OpenJDK 64-Bit Server VM (25.272-b10) for linux-amd64 JRE (1.8.0_272-b10), built on Oct 20 2020\x00"

// mappedFile is a file of a process's image.
type mappedFile struct {
	path string
	library
}

// imageTest is a process made of small files.
type imageTest struct {
	name   string
	files  []mappedFile      // the first is the program
	beside map[string]string // files that are read, not mapped
	lines  []string          // further mappings, permissions and name
	want   []Runtime         // Code and Walked aside; Why is a part of it
}

// plain is a library, or a program, of nothing in particular.
func plain() library { return exporting("") }

// python holds a CPython that walks find.
func python(constants string) library {
	return exporting(constants, "Py_GetVersion", "_PyEval_EvalFrameDefault")
}

// node holds a V8 that tells where its builtins are: at 0x40, 4,096 bytes.
func node(constants string) library {
	return exporting(constants, "_ZN4node5StartEiPPc", "v8dbg_class_Map__instance_type__uint16_t").
		with(v8CodeCall, "\xb8\x40\x00\x00\x00\xc3\x00\x00").with(v8SizeCall, "\xb8\x00\x10\x00\x00\xc3\x00\x00")
}

// nativeAndPython are programs without a runtime, and Pythons.
func nativeAndPython() []imageTest {
	return []imageTest{
		{"a native program", []mappedFile{{"/bin/x", plain()}, libc()}, nil, nil,
			[]Runtime{{Kind: Native, Libc: "glibc 2.36", Path: "/bin/x"}}},
		{"Rust", []mappedFile{{"/bin/x", exporting("\x00/rustc/9fc6b431/library/core/src/fmt/mod.rs")}}, nil, nil,
			[]Runtime{{Kind: Native, Vendor: "Rust", Path: "/bin/x"}}},
		{"code in no file", []mappedFile{{"/bin/x", plain()}}, nil, []string{"rwxp "},
			[]Runtime{{Kind: Native, Path: "/bin/x", Why: "in no file"}}},
		{"Python 3.8 by its string", []mappedFile{{"/usr/bin/python3.8", python("\x003.8.18\x00")}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "CPython", Version: "3.8.18", Path: "/usr/bin/python3.8"}}},
		{"a string shared with a path's end", []mappedFile{{"/bin/x", plain()}, {"/opt/lib/libpython3.10.so.1.0", python("libpython3.10.so.1.0\x00/opt/3.10.13/lib\x00/opt/3.10.13\x00")}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "CPython", Version: "3.10.13", Path: "/opt/lib/libpython3.10.so.1.0"}}},
		{"Python inside another program", []mappedFile{{"/bin/uwsgi", python("/usr/lib/python3.9\x003.9.2+\x00")}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "CPython", Version: "3.9.2", Path: "/bin/uwsgi"}}},
		{"a release candidate", []mappedFile{{"/bin/python3.14", python("").with("Py_Version", "\xc2\x00\x0e\x03")}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "CPython", Version: "3.14.0", Update: "3.14.0rc2", Path: "/bin/python3.14"}}},
		{"without the GIL", []mappedFile{{"/bin/python3.13t", python("").with("_PyRuntime", "xdebugpy\xf0\x01\x0d\x03\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00")}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "CPython", Version: "3.13.1", Feature: "free-threaded", Path: "/bin/python3.13t", Why: "free-threaded"}}},
		{"a Python of the future", []mappedFile{{"/bin/python3.99", python("\x003.99.1\x00")}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "CPython", Version: "3.99.1", Path: "/bin/python3.99", Why: "Python 3.99.1 is not supported (3.6 to 3.14 is)"}}},
		{"Python on musl", []mappedFile{{"/bin/python3.12", python("\x003.12.1\x00")}, {"/lib/ld-musl-x86_64.so.1", plain()}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "CPython", Version: "3.12.1", Libc: "musl", Path: "/bin/python3.12", Why: "musl"}}},
		{"PyPy", []mappedFile{{"/bin/pypy3", plain()}, {"/lib/libpypy3.9-c.so", exporting("", "pypy_main_startup")}}, nil, nil,
			[]Runtime{{Kind: Python, Vendor: "PyPy", Version: "3.9", Path: "/lib/libpypy3.9-c.so", Why: "PyPy"}}},
	}
}

// javas are JVMs of several vendors, and one beside a Python.
func javas() []imageTest {
	return []imageTest{
		{"Java 8u272 with a recorder", []mappedFile{{"/jdk/bin/java", plain()}, {"/jdk/jre/lib/amd64/server/libjvm.so", exporting(jvm8+"jdk/jfr/internal/JVM\x00", "gHotSpotVMStructs")}},
			map[string]string{"/jdk/release": "JAVA_VERSION=\"1.8.0_272\"\nIMPLEMENTOR=\"AdoptOpenJDK\"\n", "/jdk/jre/lib/jfr.jar": "PK"}, nil,
			[]Runtime{{Kind: HotSpot, Vendor: "AdoptOpenJDK", Version: "8.0.272", Update: "8u272", JFR: true, Path: "/jdk/jre/lib/amd64/server/libjvm.so", Why: "but untested"}}},
		{"Java 8 without one", []mappedFile{{"/jdk/bin/java", plain()}, {"/jdk/jre/lib/amd64/server/libjvm.so", exporting(jvm8+"jdk/jfr/internal/JVM\x00", "gHotSpotVMStructs")}}, nil, nil,
			[]Runtime{{Kind: HotSpot, Version: "8.0.272", Update: "8u272", Path: "/jdk/jre/lib/amd64/server/libjvm.so", Why: "but untested"}}},
		{"Zulu, which says two versions", []mappedFile{{"/z/bin/java", plain()}, {"/z/lib/server/libjvm.so",
			exporting("OpenJDK 64-Bit Server VM (17.0.11+9-LTS) for linux-amd64 JRE (Zulu17.50+19-CA) (17.0.11+9-LTS), built on\x00jdk/jfr/internal/JVM\x00", "gHotSpotVMStructs")}},
			map[string]string{"/z/release": "IMPLEMENTOR=\"Azul Systems, Inc.\"\nJAVA_VERSION=\"17.0.11\"\nMODULES=\"java.base jdk.jfr\"\n"}, nil,
			[]Runtime{{Kind: HotSpot, Vendor: "Azul Systems, Inc.", Version: "17.0.11", Update: "17.0.11+9-LTS", JFR: true, Path: "/z/lib/server/libjvm.so"}}},
		{"an image without the recorder's module, on musl", []mappedFile{{"/z/bin/java", plain()}, {"/z/lib/server/libjvm.so",
			exporting("OpenJDK 64-Bit Server VM (21.0.2+13) for linux-amd64-musl JRE (21.0.2+13), built\x00jdk/jfr/internal/JVM\x00", "gHotSpotVMStructs")}, {"/lib/ld-musl-x86_64.so.1", plain()}},
			map[string]string{"/z/release": "JAVA_VERSION=\"21.0.2\"\nMODULES=\"java.base jdk.jfrx\"\n"}, nil,
			[]Runtime{{Kind: HotSpot, Version: "21.0.2", Update: "21.0.2+13", Libc: "musl", Path: "/z/lib/server/libjvm.so"}}},
		{"a JDK that was replaced", []mappedFile{{"/z/bin/java", plain()}, {"/z/lib/server/libjvm.so",
			exporting("OpenJDK 64-Bit Server VM (21.0.2+13) for linux-amd64 JRE (21.0.2+13), built\x00", "gHotSpotVMStructs")}},
			map[string]string{"/z/release": "JAVA_VERSION=\"21.0.3\"\nIMPLEMENTOR=\"Other\"\n"}, nil,
			[]Runtime{{Kind: HotSpot, Version: "21.0.2", Update: "21.0.2+13", Path: "/z/lib/server/libjvm.so"}}},
		{"OpenJ9", []mappedFile{{"/j/bin/java", plain()}, {"/j/lib/default/libj9vm29.so", exporting("", "J9_CreateJavaVM")}},
			map[string]string{"/j/release": "JAVA_VERSION=\"17.0.9\"\nIMPLEMENTOR=\"IBM Corporation\"\n"}, nil,
			[]Runtime{{Kind: OpenJ9, Vendor: "IBM Corporation", Version: "17.0.9", Update: "17.0.9", Path: "/j/lib/default/libj9vm29.so", Why: "OpenJ9"}}},
		{"a native image", []mappedFile{{"/bin/x", exporting("com.oracle.svm.core.VM=GraalVM 22.3.0 Java 17 CE\x00", "graal_create_isolate")}}, nil, nil,
			[]Runtime{{Kind: NativeImage, Vendor: "GraalVM", Version: "22.3.0", Update: "GraalVM 22.3.0 Java 17 CE", Path: "/bin/x", Why: "native image"}}},
		{"a JVM that loads Python", []mappedFile{{"/z/bin/java", plain()},
			{"/z/lib/server/libjvm.so", exporting("OpenJDK 64-Bit Server VM (21.0.2+13) for linux-amd64 JRE (21.0.2+13), built\x00", "gHotSpotVMStructs")},
			{"/lib/libpython3.11.so.1.0", python("\x003.11.2\x00")}}, nil, nil,
			[]Runtime{{Kind: HotSpot, Version: "21.0.2", Update: "21.0.2+13", Path: "/z/lib/server/libjvm.so"},
				{Kind: Python, Vendor: "CPython", Version: "3.11.2", Path: "/lib/libpython3.11.so.1.0"}}},
	}
}

// otherLanguages are all the rest.
func otherLanguages() []imageTest {
	return []imageTest{
		{"Node in a library", []mappedFile{{"/usr/bin/node", plain()}, {"/usr/lib/libnode.so.108", node("node.js/v18.20.4\x00").with("_ZN2v88internal7Version6major_E", "\x0a\x00\x00\x00").
			with("_ZN2v88internal7Version6minor_E", "\x02\x00\x00\x00").with("_ZN2v88internal7Version6build_E", "\x9a\x00\x00\x00").
			with("_ZN2v88internal7Version6patch_E", "\x1a\x00\x00\x00")}}, nil, nil,
			[]Runtime{{Kind: Node, Vendor: "Node.js", Version: "18.20.4", Engine: "V8 10.2.154.26", Path: "/usr/lib/libnode.so.108"}}},
		{"Node that is stripped", []mappedFile{{"/bin/node", exporting("node.js/v24.11.0\x00", "_ZN4node5StartEiPPc", "v8dbg_class_Map__instance_type__uint16_t")}}, nil, nil,
			[]Runtime{{Kind: Node, Vendor: "Node.js", Version: "24.11.0", Path: "/bin/node", Why: "JavaScript is not read, this V8 does not tell where its builtins are: its file is stripped of symbols: native frames only"}}},
		{"Electron", []mappedFile{{"/opt/code", exporting("ELECTRON_RUN_AS_NODE\x00node.js/v20.9.0\x00", "napi_create_function")}}, nil, nil,
			[]Runtime{{Kind: Node, Vendor: "Electron", Version: "20.9.0", Path: "/opt/code", Why: "v8dbg_"}}},
		{"Deno", []mappedFile{{"/bin/deno", exporting("DENO_DIR\x00", "napi_create_function")}}, nil, nil,
			[]Runtime{{Kind: Deno, Vendor: "Deno", Path: "/bin/deno", Why: "not read yet"}}},
		{"Bun", []mappedFile{{"/bin/bun", exporting("BUN_INSTALL\x00DENO_DIR\x00", "napi_create_function")}}, nil, nil,
			[]Runtime{{Kind: Bun, Vendor: "Bun", Path: "/bin/bun", Why: "Bun"}}},
		{"an add-on is no runtime", []mappedFile{{"/bin/x", plain()}, {"/lib/y.node", exporting("", "napi_create_function")}}, nil, nil,
			[]Runtime{{Kind: Native, Path: "/bin/x"}}},
		{"Ruby 3.4", []mappedFile{{"/bin/ruby", plain()}, {"/lib/libruby.so.3.4", library{map[string]string{"ruby_version": "3.4.1\x00"}, ""}}}, nil, nil,
			[]Runtime{{Kind: Ruby, Vendor: "CRuby", Version: "3.4.1", Path: "/lib/libruby.so.3.4", Why: "Ruby 3.4.1 is not supported (3.1 is)"}}},
		{"PHP for threads in Apache", []mappedFile{{"/bin/apache2", plain()}, {"/lib/libphp.so", exporting("X-Powered-By: PHP/8.2.1\x00", "php_request_startup", "execute_ex")}, {"/lib/php/opcache.so", plain()}}, nil, nil,
			[]Runtime{{Kind: PHP, Vendor: "PHP", Version: "8.2.1", Feature: "ZTS opcache", Path: "/lib/libphp.so", Why: "PHP built for threads (ZTS) is not supported: native frames only"}}},
		{"PHP that compiles", []mappedFile{{"/bin/php8.2", exporting("X-Powered-By: PHP/8.2.1\x00", "php_request_startup", "executor_globals", "execute_ex")}, {"/lib/php/opcache.so", plain()}}, nil, []string{"r-xs /dev/zero (deleted)"},
			[]Runtime{{Kind: PHP, Vendor: "PHP", Version: "8.2.1", Feature: "opcache JIT", Path: "/bin/php8.2"}}},
		{"Perl", []mappedFile{{"/bin/perl", exporting("v5.11, and\x00v5.36.0\x00", "perl_run", "PL_thr_key", "Perl_runops_standard")}}, nil, nil,
			[]Runtime{{Kind: Perl, Vendor: "Perl", Version: "5.36.0", Feature: "ithreads", Path: "/bin/perl"}}},
		{"Perl without threads, by its constants", []mappedFile{{"/bin/perl", exporting("v5.30.0\x00", "perl_run", "Perl_runops_standard").
			with("PL_revision", "\x05").with("PL_version", "\x24").with("PL_subversion", "\x03")}}, nil, nil,
			[]Runtime{{Kind: Perl, Vendor: "Perl", Version: "5.36.3", Path: "/bin/perl", Why: "Perl built without threads (ithreads) is not supported: native frames only"}}},
		{"Perl that hides its interpreter", []mappedFile{{"/bin/perl", exporting("v5.36.0\x00", "perl_run", "PL_thr_key")}}, nil, nil,
			[]Runtime{{Kind: Perl, Vendor: "Perl", Version: "5.36.0", Feature: "ithreads", Path: "/bin/perl", Why: "Perl is not read, its file does not export Perl_runops_standard"}}},
		{".NET", []mappedFile{{"/usr/bin/dotnet", plain()}, {"/usr/share/dotnet/shared/Microsoft.NETCore.App/8.0.1/libcoreclr.so", exporting("@(#)Version 8.0.123.58001 @Commit: a", "coreclr_initialize")}}, nil, nil,
			[]Runtime{{Kind: DotNet, Vendor: ".NET", Version: "8.0.1", Path: "/usr/share/dotnet/shared/Microsoft.NETCore.App/8.0.1/libcoreclr.so", Why: "(3.0 to 3.1 is)"}}},
		{".NET in one file", []mappedFile{{"/bin/x", exporting("@(#)Version 8.0.123.58001 @Commit: a", "DotNetRuntimeInfo")}}, nil, nil,
			[]Runtime{{Kind: DotNet, Vendor: ".NET", Version: "8.0.123.58001", Feature: "single file", Path: "/bin/x", Why: "(3.0 to 3.1 is)"}}},
		{"BEAM", []mappedFile{{"/erts/bin/beam.smp", exporting("removal in Erlang/OTP 18. For\x00Erlang/OTP 26%s [erts-14.2.5] [source] [64-bit] [jit:ns%s]\n\x00", "enif_alloc")}}, nil, nil,
			[]Runtime{{Kind: BEAM, Vendor: "Erlang/OTP", Version: "26", Engine: "erts 14.2.5", Feature: "JIT", Path: "/erts/bin/beam.smp", Why: "Erlang 26"}}},
		{"LuaJIT in nginx", []mappedFile{{"/bin/nginx", plain()}, {"/lib/libluajit-5.1.so.2", exporting("LuaJIT 2.1.1700000000\x00", "luaJIT_setmode")}}, nil, nil,
			[]Runtime{{Kind: LuaJIT, Vendor: "LuaJIT", Version: "2.1.1700000000", Path: "/lib/libluajit-5.1.so.2", Why: "LuaJIT"}}},
		{"Mono", []mappedFile{{"/bin/mono-sgen", exporting("", "mono_jit_init")}}, nil, nil,
			[]Runtime{{Kind: Mono, Vendor: "Mono", Path: "/bin/mono-sgen", Why: "Mono"}}},
	}
}

func libc() mappedFile {
	return mappedFile{"/lib/x86_64-linux-gnu/libc.so.6", exporting("GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n")}
}

// TestImages detects runtimes in processes made of small files, for versions
// and vendors that no test machine has all of.
func TestImages(t *testing.T) {
	for _, test := range slices.Concat(nativeAndPython(), javas(), otherLanguages()) {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t)
			for _, f := range test.files {
				m.mapped(f.path, f.bytes())
			}
			m.program(test.files[0].path)
			for path, content := range test.beside {
				m.write("root"+path, content)
			}
			for _, line := range test.lines {
				perm, name, _ := strings.Cut(line, " ")
				m.line(perm, name)
			}
			d := Detector{FS: m.fs()}
			for _, when := range []string{"first", "from what is kept"} {
				got, err := d.Detect(7)
				if err != nil {
					t.Fatal(err)
				}
				compareRuntimes(t, when, got, test.want)
			}
		})
	}
}

// compareRuntimes holds runtimes to those wanted: a reason is a part of the one
// that is given, and who has none, or is but untested, is walked.
func compareRuntimes(t *testing.T, when string, got, want []Runtime) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %+v, want %+v", when, got, want)
	}
	for i, g := range got {
		w := want[i]
		if !strings.Contains(g.Why, w.Why) {
			t.Errorf("%s: reason %q, want it to hold %q", when, g.Why, w.Why)
		}
		if walked := w.Why == "" || strings.HasSuffix(w.Why, "untested"); g.Walked != walked {
			t.Errorf("%s: %+v is walked: %v, want %v", when, g, g.Walked, walked)
		}
		if g.Code.Path != g.Path {
			t.Errorf("%s: code of %q is in %q", when, g.Path, g.Code.Path)
		}
		g.Why, w.Why, g.Walked, g.Lacks, g.Code = "", "", false, "", w.Code
		if g != w {
			t.Errorf("%s:\n got %+v\nwant %+v", when, g, w)
		}
	}
}

// TestUnreadable tells runtimes by name where their files cannot be opened,
// here because another file took their place.
func TestUnreadable(t *testing.T) {
	m := newMachine(t)
	m.mapped("/bin/app", exporting("").bytes())
	m.program("/bin/app")
	for _, path := range []string{"/lib/libpython3.11.so.1.0", "/jdk/lib/server/libjvm.so", "/lib/libother.so"} {
		m.line("r-xp", path)
	}
	d := Detector{FS: m.fs()}
	got, err := d.Detect(7)
	if err != nil || len(got) != 2 || got[0].Kind != Python || got[0].Version != "3.11" || got[1].Kind != HotSpot {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, r := range got {
		if r.Walked || !strings.Contains(r.Why, "known by its file's name only: ") {
			t.Errorf("%s: walked %v, %q", r.Kind, r.Walked, r.Why)
		}
	}
}

// TestFileChanges looks again at a file that was written anew in its place.
func TestFileChanges(t *testing.T) {
	m := newMachine(t)
	m.mapped("/bin/python3.8", python("\x003.8.18\x00").bytes())
	m.program("/bin/python3.8")
	d := Detector{FS: m.fs()}
	if got, err := d.Detect(7); err != nil || got[0].Version != "3.8.18" {
		t.Fatalf("%+v, %v", got, err)
	}
	at := m.write("root/bin/python3.8", string(python("\x003.8.9\x00").bytes()))
	if got, err := d.Detect(7); err != nil || got[0].Version != "3.8.9" {
		t.Errorf("after %s has changed: %+v, %v", at, got, err)
	}
	if len(d.files) != 2 {
		t.Errorf("%d states of the file are kept, want 2", len(d.files))
	}
}

// TestBits32 names what is not walked as such.
func TestBits32(t *testing.T) {
	m := newMachine(t)
	m.mapped("/bin/old", []byte("\x7fELF\x01\x01\x01"+strings.Repeat("\x00", 100)))
	m.program("/bin/old")
	d := Detector{FS: m.fs()}
	if got, err := d.Detect(7); err != nil || len(got) != 1 || got[0].Walked || !strings.Contains(got[0].Why, "32-bit") {
		t.Errorf("%+v, %v", got, err)
	}
}

// FuzzInspect: no file makes inspect panic, or a version that could not be one.
func FuzzInspect(f *testing.F) {
	f.Add(exporting(jvm8, "gHotSpotVMStructs").bytes(), "/jdk/lib/server/libjvm.so")
	f.Add(exporting("\x003.8.18\x00v5.36.0\x00", "Py_GetVersion", "perl_run", "enif_alloc").bytes(), "/bin/python3.8")
	f.Add(exporting("node.js/v20.1.2", "_ZN4node5StartEiPPc").bytes(), "/bin/node")
	f.Add(exporting("@(#)Version 8.0.1", "DotNetRuntimeInfo", "graal_create_isolate").bytes(), "/bin/x")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		fd, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
		if err != nil {
			t.Skip(err)
		}
		file := os.NewFile(uintptr(fd), "fuzz")
		defer file.Close()
		if _, err := file.Write(data); err != nil {
			t.Fatal(err)
		}
		for _, program := range []bool{true, false} {
			for _, r := range inspect(file, path, program, nil).runtimes {
				if strings.Trim(r.Version, "0123456789.") != "" || len(r.Version) > maxVersion {
					t.Fatalf("version %q of %s", r.Version, r.Kind)
				}
			}
		}
	})
}
