package lang

import (
	"cmp"
	"path"
	"regexp"
)

// recogniser knows a runtime by symbols that its file defines.
type recogniser struct {
	symbols []string // any of them
	read    func(*image) (Runtime, bool)
}

// recognisers returns them all, most telling first; a file can hold several.
func recognisers() []recogniser {
	return []recogniser{
		{[]string{"Py_GetVersion"}, readPython},
		{[]string{"pypy_main_startup", "rpython_startup_code"}, readPyPy},
		{[]string{"gHotSpotVMStructs"}, readHotSpot},
		{[]string{"J9_CreateJavaVM"}, readOpenJ9},
		{[]string{"graal_create_isolate"}, readNativeImage},
		{[]string{"_ZN4node5StartEiPPc", "napi_create_function"}, readNode},
		{[]string{"ruby_version"}, readRuby},
		{[]string{"php_request_startup"}, readPHP},
		{[]string{"perl_run"}, readPerl},
		{[]string{"coreclr_initialize", "DotNetRuntimeInfo", "DotNetRuntimeDebugHeader"}, readDotNet},
		{[]string{"enif_alloc"}, readBEAM},
		{[]string{"luaJIT_setmode"}, readLuaJIT},
		{[]string{"mono_jit_init"}, readMono},
	}
}

// markers are all symbols that recognisers and their readers look at.
func markers() (names []string) {
	for _, r := range recognisers() {
		names = append(names, r.symbols...)
	}
	return append(names, "Py_Version", "_PyRuntime", "ruby_engine", "executor_globals", "PL_revision", "PL_version", "PL_subversion", "PL_thr_key", "rust_eh_personality")
}

// facts recognises what the file holds.
func (im *image) facts() (f facts) {
	if im.program && im.file.IsGo() {
		f.runtimes = append(f.runtimes, readGo(im))
	}
	if im.program && im.file.Section(".svm_heap") != nil {
		if r, ok := readNativeImage(im); ok {
			f.runtimes = append(f.runtimes, r)
		}
	}
	for _, r := range recognisers() {
		for _, symbol := range r.symbols {
			if !im.has(symbol) {
				continue
			}
			if found, ok := r.read(im); ok && !sameKind(f.runtimes, found.Kind) {
				found.Lacks = cmp.Or(im.hidden(found.Kind), found.Lacks)
				f.runtimes = append(f.runtimes, found)
			}
			break
		}
	}
	f.libc = readLibc(im)
	f.opcache = im.base() == "opcache.so"
	if im.program && len(f.runtimes) == 0 {
		f.language = readLanguage(im)
	}
	return f
}

func sameKind(runtimes []Runtime, kind Kind) bool {
	for _, r := range runtimes {
		if r.Kind == kind {
			return true
		}
	}
	return false
}

// named are file names that runtimes are known by, with the version in
// parentheses: all that is left where a file cannot be read.
var named = []struct {
	kind Kind
	name *regexp.Regexp
}{
	{Python, regexp.MustCompile(`^(?:libpython|python)(\d\.\d{1,2})[a-z]{0,2}(?:\.so[.\d]*)?$`)},
	{HotSpot, regexp.MustCompile(`^libjvm\.so$`)},
	{OpenJ9, regexp.MustCompile(`^libj9vm\d+\.so$`)},
	{Node, regexp.MustCompile(`^(?:node|libnode\.so\.\d+)$`)},
	{Deno, regexp.MustCompile(`^deno$`)},
	{Bun, regexp.MustCompile(`^bun$`)},
	{Ruby, regexp.MustCompile(`^(?:libruby(?:-|\.so\.)|ruby)(\d\.\d{1,2})`)},
	{PHP, regexp.MustCompile(`^(?:php|php-fpm|php-cgi|libphp)(\d\.\d{1,2})?(?:\.so)?$`)},
	{Perl, regexp.MustCompile(`^(?:libperl\.so\.|perl)(\d\.\d{1,2})?`)},
	{DotNet, regexp.MustCompile(`^libcoreclr\.so$`)},
	{BEAM, regexp.MustCompile(`^beam(?:\.smp)?$`)},
	{LuaJIT, regexp.MustCompile(`^(?:libluajit-\d\.\d\.so|luajit)`)},
	{Mono, regexp.MustCompile(`^(?:libmonosgen-|mono-sgen|libmono-2)`)},
}

// byName tells what a file that cannot be read seems to be.
func byName(at string, err error) facts {
	f := facts{err: err}
	for _, n := range named {
		m := n.name.FindStringSubmatch(path.Base(at))
		if m == nil {
			continue
		}
		r := Runtime{Kind: n.kind, Why: "known by its file's name only: " + err.Error()}
		if len(m) > 1 {
			r.Version = m[1]
		}
		f.runtimes = []Runtime{r}
		break
	}
	if nameOfMusl(path.Base(at)) {
		f.libc = "musl"
	}
	return f
}
