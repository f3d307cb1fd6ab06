package lang

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"atys.dev/atys/internal/proc"
)

func TestServiceName(t *testing.T) {
	const id = "5f1b0a4c3d2e1f00112233445566778899aabbccddeeff001122334455667788"
	const pod = "0b9e1f2a-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
	words := strings.Fields
	tests := []struct {
		name string
		e    evidence
		want string
		from Source
	}{
		{"its name for OpenTelemetry", evidence{environ: map[string]string{otelService: "shop", otelAttributes: "service.name=other"}, workload: proc.Workload{Container: id}}, "shop", FromEnvironment},
		{"its attributes", evidence{environ: map[string]string{otelAttributes: "a=b, service.name = sh%20op ,service.version=2"}, workload: proc.Workload{Unit: "x.service"}}, "sh op", FromEnvironment},
		{"attributes that do not decode", evidence{environ: map[string]string{otelAttributes: "service.name=100%"}}, "100%", FromEnvironment},
		{"an empty name", evidence{environ: map[string]string{otelService: ""}, workload: proc.Workload{Unit: "x.service"}}, "x", FromUnit},
		{"a pod before its container", evidence{workload: proc.Workload{PodUID: pod, Container: id, Unit: "x.service"}}, pod, FromPod},
		{"a container before a unit inside", evidence{workload: proc.Workload{Container: id, Unit: "nginx.service"}}, id, FromContainer},
		{"a unit before the program", evidence{workload: proc.Workload{Unit: "nginx.service"}, exe: "/usr/sbin/nginx"}, "nginx", FromUnit},
		{"a login session is no service", evidence{workload: proc.Workload{Unit: "session-3.scope"}, exe: "/usr/bin/vim"}, "vim", FromExecutable},
		{"nor is a user's manager", evidence{workload: proc.Workload{Unit: "user@1000.service"}, exe: "/usr/bin/vim"}, "vim", FromExecutable},
		{"a jar", evidence{kinds: []Kind{HotSpot}, args: words("java -Xmx1g -cp a:b -jar /srv/shop.jar --port 1"), exe: "/usr/bin/java"}, "shop", FromJar},
		{"a main class", evidence{kinds: []Kind{HotSpot}, args: words("java -cp a:b --add-opens java.base/java.lang=ALL-UNNAMED -Xmx1g org.shop.Main x.jar"), exe: "/usr/bin/java"}, "org.shop.Main", FromMainClass},
		{"a module", evidence{kinds: []Kind{HotSpot}, args: words("java -p mods -m shop/org.shop.Main"), exe: "/usr/bin/java"}, "org.shop.Main", FromMainClass},
		{"a module inline", evidence{kinds: []Kind{HotSpot}, args: words("java --module=shop"), exe: "/usr/bin/java"}, "shop", FromMainClass},
		{"Java's source", evidence{kinds: []Kind{HotSpot}, args: words("java --source 21 /srv/Shop.java"), exe: "/usr/bin/java"}, "Shop.java", FromScript},
		{"Java in an argument file", evidence{kinds: []Kind{HotSpot}, args: words("java @args"), command: "org.shop.Main --x", exe: "/usr/bin/java"}, "org.shop.Main", FromMainClass},
		{"a jar as the JVM tells", evidence{kinds: []Kind{HotSpot}, args: words("java @args"), command: "/srv/shop.jar --x", exe: "/usr/bin/java"}, "shop", FromJar},
		{"-jar without one", evidence{kinds: []Kind{HotSpot}, args: words("java -jar"), exe: "/usr/bin/java"}, "?", FromJar},
		{"a Python script", evidence{kinds: []Kind{Python}, args: words("python3 -u -X dev /srv/shop/app.py --x"), exe: "/usr/bin/python3.11"}, "app.py", FromScript},
		{"a Python module", evidence{kinds: []Kind{Python}, args: words("python3 -m gunicorn shop:app"), exe: "/usr/bin/python3.11"}, "gunicorn", FromScript},
		{"Python in an argument", evidence{kinds: []Kind{Python}, args: []string{"python3", "-c", "import x"}, exe: "/usr/bin/python3.11"}, "python3.11", FromExecutable},
		{"a changed title", evidence{kinds: []Kind{Python}, args: []string{"gunicorn: worker [shop]"}, exe: "/usr/bin/python3.11"}, "python3.11", FromExecutable},
		{"Node", evidence{kinds: []Kind{Node}, args: words("node --require dotenv --max-old-space-size=4096 dist/server.js"), exe: "/usr/bin/node"}, "server.js", FromScript},
		{"Deno", evidence{kinds: []Kind{Deno}, args: words("deno run --allow-net main.ts"), exe: "/usr/bin/deno"}, "main.ts", FromScript},
		{"Ruby", evidence{kinds: []Kind{Ruby}, args: words("ruby -I lib bin/puma -p 3000"), exe: "/usr/bin/ruby3.1"}, "puma", FromScript},
		{"Perl", evidence{kinds: []Kind{Perl}, args: words("perl -w -I lib shop.pl"), exe: "/usr/bin/perl"}, "shop.pl", FromScript},
		{"PHP", evidence{kinds: []Kind{PHP}, args: words("php -d a=b -f shop.php"), exe: "/usr/bin/php8.2"}, "shop.php", FromScript},
		{"PHP's pool", evidence{kinds: []Kind{PHP}, args: []string{"php-fpm: pool www"}, exe: "/usr/sbin/php-fpm8.2"}, "php-fpm8.2", FromExecutable},
		{".NET", evidence{kinds: []Kind{DotNet}, args: words("dotnet exec /srv/Shop.dll x"), exe: "/usr/bin/dotnet"}, "Shop", FromScript},
		{"a shell script", evidence{kinds: []Kind{Native}, args: words("/bin/sh -o pipefail /srv/start.sh -x"), exe: "/usr/bin/dash"}, "start.sh", FromScript},
		{"a login shell with a command", evidence{kinds: []Kind{Native}, args: []string{"bash", "-lc", "echo /x/y/oops"}, exe: "/usr/bin/bash"}, "bash", FromExecutable},
		{"a shell with options joined", evidence{kinds: []Kind{Native}, args: words("bash -eu /srv/run.sh x"), exe: "/usr/bin/bash"}, "run.sh", FromScript},
		{"Perl in an argument", evidence{kinds: []Kind{Perl}, args: []string{"perl", "-lne", "print /foo/bar"}, exe: "/usr/bin/perl"}, "perl", FromExecutable},
		{"Perl with a module", evidence{kinds: []Kind{Perl}, args: words("perl -MCarp=verbose -wT /srv/job.pl"), exe: "/usr/bin/perl"}, "job.pl", FromScript},
		{"Python's options joined", evidence{kinds: []Kind{Python}, args: []string{"python3", "-Bc", "import x #a/b"}, exe: "/usr/bin/python3.11"}, "python3.11", FromExecutable},
		{"a module behind joined options", evidence{kinds: []Kind{Python}, args: words("python3 -Im shop.api"), exe: "/usr/bin/python3.11"}, "shop.api", FromScript},
		{"a module in one argument", evidence{kinds: []Kind{Python}, args: words("python3 -mshop.api x"), exe: "/usr/bin/python3.11"}, "shop.api", FromScript},
		{"a warning in one argument", evidence{kinds: []Kind{Python}, args: words("python3 -Wcall /srv/a.py"), exe: "/usr/bin/python3.11"}, "a.py", FromScript},
		{"Ruby in an argument", evidence{kinds: []Kind{Ruby}, args: []string{"ruby", "-rjson", "-ne", "p /a/"}, exe: "/usr/bin/ruby3.1"}, "ruby3.1", FromExecutable},
		{"a shell that reads a descriptor", evidence{kinds: []Kind{Native}, args: words("bash /dev/fd/3"), exe: "/usr/bin/bash"}, "bash", FromExecutable},
		{"a shell that reads a descriptor of /proc", evidence{kinds: []Kind{Native}, args: words("bash -e /proc/self/fd/63 x"), exe: "/usr/bin/bash"}, "bash", FromExecutable},
		{"Python that reads standard input", evidence{kinds: []Kind{Python}, args: words("python3 -u /dev/stdin"), exe: "/usr/bin/python3.11"}, "python3.11", FromExecutable},
		{"a script below a folder called dev", evidence{kinds: []Kind{Native}, args: words("bash /srv/dev/fd/3.sh"), exe: "/usr/bin/bash"}, "3.sh", FromScript},
		{"an interactive shell", evidence{kinds: []Kind{Native}, args: words("bash -i"), exe: "/usr/bin/bash"}, "bash", FromExecutable},
		{"a native program", evidence{kinds: []Kind{Native}, args: words("nginx -c x.conf"), exe: "/usr/sbin/nginx", comm: "n"}, "nginx", FromExecutable},
		{"a program that has no path", evidence{kinds: []Kind{Native}, exe: "/memfd:x", comm: "runc"}, "runc", FromExecutable},
		{"nothing but a name", evidence{comm: "x"}, "x", FromExecutable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := test.e.service(); got.Name != test.want || got.Source != test.from {
				t.Errorf("%q from %q, want %q from %q", got.Name, got.Source, test.want, test.from)
			}
		})
	}
}

// FuzzAttribute: a value that was encoded comes back.
func FuzzAttribute(f *testing.F) {
	f.Add("a=b,", "shop")
	f.Add("service.namex=1,", "a, b=c")
	f.Fuzz(func(t *testing.T, before, value string) {
		if attribute(before, "service.name") != "" || strings.TrimSpace(value) == "" {
			return
		}
		if got := attribute(before+",service.name="+url.PathEscape(value), "service.name"); got != value && !strings.Contains(before, "service.name") {
			t.Fatalf("%q, want %q", got, value)
		}
	})
}

// FuzzProgram: whatever the arguments, the name is one of them, or a part.
func FuzzProgram(f *testing.F) {
	f.Add("java\x00-cp\x00a\x00Main", string(HotSpot))
	f.Add("python3\x00-m\x00x", string(Python))
	f.Add("php\x00-f\x00", string(PHP))
	f.Add("dotnet\x00a/b.dll", string(DotNet))
	f.Fuzz(func(t *testing.T, line, kind string) {
		e := evidence{args: proc.ParseCmdline([]byte(line)), kinds: []Kind{Kind(kind)}, exe: "/usr/bin/sh"}
		name, source := e.program()
		if name != "?" && name != "sh" && name != "." && name != "/" && !strings.Contains(line, name) {
			t.Fatalf("%q from %s is not in %q", name, source, line)
		}
	})
}

func TestServiceInstance(t *testing.T) {
	for attributes, want := range map[string]string{
		"": "", "service.name=shop": "", "service.name=shop,service.instance.id=web-1": "web-1", " service.instance.id = a%2Fb": "a/b",
	} {
		e := evidence{environ: map[string]string{otelAttributes: attributes}, exe: "/usr/bin/vim"}
		if got := e.service().Instance; got != want {
			t.Errorf("%q: %q, want %q", attributes, got, want)
		}
	}
}

func TestParsePerfData(t *testing.T) {
	data := perfData("java.property.java.vm.vendor", "Debian", "sun.rt.javaCommand", "org.shop.Main --x")
	want := map[string]string{perfVendor: "Debian", perfCommand: "org.shop.Main --x"}
	if got := parsePerfData(data); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range data {
		parsePerfData(data[:i])
	}
	if got := parsePerfData([]byte("no such data, but long enough for a header of it")); got != nil {
		t.Errorf("%q from nothing", got)
	}
}

// perfData writes names and values as a JVM does.
func perfData(pairs ...string) []byte {
	word := func(v int) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }
	data := append([]byte{0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1}, make([]byte, 16)...)
	data = append(append(data, word(32)...), word(len(pairs)/2)...)
	for i := 0; i < len(pairs); i += 2 {
		name, value := pairs[i]+"\x00", pairs[i+1]+"\x00"
		entry := append(append(word(20+len(name)+len(value)), word(20)...), word(len(value))...)
		entry = append(append(entry, 'B', 1, 5, 1), word(20+len(name))...)
		data = append(append(append(data, entry...), name...), value...)
	}
	return data
}

// FuzzPerfData: strings that are found are in the data.
func FuzzPerfData(f *testing.F) {
	f.Add(perfData("a", "b", "sun.rt.javaCommand", "x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, value := range parsePerfData(data) {
			if !strings.Contains(string(data), name) || !strings.Contains(string(data), value) {
				t.Fatalf("%q=%q is not in the data", name, value)
			}
		}
	})
}

// FuzzVersions: parsers of versions return numbers that compare, or nothing.
func FuzzVersions(f *testing.F) {
	f.Add("1.8.0_272-b10", uint32(0x030b07f0))
	f.Add("17.0.15+6-Debian-1deb12u1", uint32(0x030e00c2))
	f.Add("3\x00", uint32(0))
	f.Fuzz(func(t *testing.T, text string, hex uint32) {
		java, _ := javaVersion(text)
		python, _ := pythonHex(hex)
		for _, v := range []string{java, python, numbers(text), pythonMicro("3.8", text), nodeVersion([]byte("node.js/v" + text))} {
			if strings.Trim(v, "0123456789.") != "" || strings.HasSuffix(v, ".") {
				t.Fatalf("%q is no version", v)
			}
			series(v)
		}
		parseRelease(text)
	})
}
