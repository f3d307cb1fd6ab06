package unwind

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

// markers are what each runtime's file is known by, and more that is read of it.
const markers = `
long gHotSpotVMStructs, v8dbg_frametype_ArgumentsAdaptorFrame = 1, v8dbg_class_Map__instance_type__uint16_t = 12;
long erts_atom_table, erts_proc, beam_normal_exit, DotNetRuntimeInfo, v8dbg_class_JSFunction__shared__SharedFunctionInfo = 24;
char version[] = "PHP/8.2.29 ruby 3.1.7 v5.36.0 libpython3.11.so.1.0 X-Powered-By: PHP/8.2.29";
__thread long ruby_current_ec, PL_current_context, own = 3;
long *current(void) { return &own; }
int execute_ex(long *p) { return p ? *p + 1 : execute_ex(current()); }
int rb_vm_exec(long *p) { return p ? *p + 2 : rb_vm_exec(current()); }
int Perl_runops_standard(long *p) { return p ? *p + 3 : Perl_runops_standard(current()); }
int _PyEval_EvalFrameDefault(long *p, long *q) { return p ? *p + 4 : _PyEval_EvalFrameDefault(current(), q); }
int coreclr_initialize(void) { return 5; }
long *Perl_get_context(void) { return &PL_current_context; }
long *PyGILState_GetThisThreadState(void) { return current(); }
`

// buildMarkers builds a file with the marks of all runtimes.
func buildMarkers(t testing.TB, path string) {
	t.Helper()
	buildLibrary(t, path, markers)
}

func buildLibrary(t testing.TB, path, source string) {
	t.Helper()
	compile := exec.Command("cc", "-x", "c", "-O1", "-w", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id=none", "-o", path, "-")
	compile.Stdin = strings.NewReader(source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}

// FuzzRuntimeFiles reads files that say that they hold runtimes, in a process
// that is not there: every one must be refused, with words.
func FuzzRuntimeFiles(f *testing.F) {
	dir := f.TempDir()
	built := filepath.Join(dir, "runtime.so")
	buildMarkers(f, built)
	whole, err := os.ReadFile(built)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, uint32(0), []byte{})
	f.Add(whole, uint32(len(whole)/2), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	elf, err := binfile.Open(built)
	if err != nil {
		f.Fatal(err)
	}
	defer elf.Close()
	for _, r := range languages {
		if !r.holds(elf) {
			f.Errorf("the file does not look as if it held language %d", r.language)
		}
	}
	path := filepath.Join(dir, "changed.so")
	f.Fuzz(func(t *testing.T, file []byte, at uint32, change []byte) {
		file = bytes.Clone(file)
		if int64(at) < int64(len(file)) {
			copy(file[at:], change)
		}
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		readAll(t, path)
	})
}

// readAll reads a file as that of each runtime which it seems to hold.
func readAll(t *testing.T, path string) {
	elf, err := binfile.Open(path)
	if err != nil {
		return
	}
	defer elf.Close()
	for _, r := range languages {
		if r.language == DotNet || !r.holds(elf) { // .NET's is known by its name alone
			continue
		}
		if _, err := r.read(lang.Mapped{PID: -1, Path: path, Open: func() (*os.File, error) { return os.Open(path) }}); err == nil || err.Error() == "" {
			t.Errorf("language %d was read of no process: %v", r.language, err)
		}
	}
}
