package languages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/unwind"
)

// dotnet finds the .NET Core that .ci/runtimes installs, and compiles a program
// for it with Mono's compiler.
func dotnet(t *testing.T, source string) *exec.Cmd {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(home + "/.cache/atys/runtimes/dotnet-3.1.*/dotnet")
	if len(found) == 0 {
		t.Skip("no .NET: run .ci/runtimes")
	}
	compiler, err := exec.LookPath("mcs")
	if err != nil {
		t.Skip("no C# compiler: install mono-mcs")
	}
	directory := t.TempDir()
	program := filepath.Join(directory, "program.dll")
	if out, err := exec.Command(compiler, "-langversion:7", "-optimize+", "-out:"+program, source).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	config := `{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"3.1.0"}}}`
	if err := os.WriteFile(filepath.Join(directory, "program.runtimeconfig.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	tellVersion(t, versionNumber.FindString(found[0]))
	cmd := exec.Command(found[0], program)
	cmd.Env = append(os.Environ(), "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "DOTNET_CLI_TELEMETRY_OPTOUT=1")
	return cmd
}

// dotnetChains is what Chains.cs may be doing, of its own methods. Calls that
// are a method's last act may take its place.
var dotnetChains = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`Main( Run)?`,
	`Main Run Recursing( Descend){0,20}`,
	`Main Run Recursing( Descend){21}( Burn)?`,
	`Main Run Boxing( (ctor|Keep( Burn)?))?`,
	`Main Run Calling( <Calling>m__0)?( Burn)?`,
	`Main Run Awaiting( MoveNext)?`,
	`MoveNext( ExecutionContextCallback)?( MoveNext)?( Burn)?`,
	`ExecuteFromThreadPool( MoveNext)?( ExecutionContextCallback)?( MoveNext)?( Burn)?`,
	`(ExecutionContextCallback )?MoveNext( Burn)?`,
	`Main Run Measuring( Area)?`,
	`Main Run Sorting( Compare( Burn)?)?`,
}, "|") + `)$`)

// own is the chain of a program's methods, without their classes. What the
// runtime makes of an async method is in a class of its own library.
func own(o observed) string {
	var names []string
	for _, f := range o.of(profile.KindDotNet) {
		if strings.Contains(f.Function, "Atys.Victim.") {
			names = append(names, f.Function[strings.LastIndex(f.Function, ".")+1:])
		}
	}
	return strings.Join(names, " ")
}

func TestDotNetChains(t *testing.T) {
	needsBPF(t)
	pid := launch(t, dotnet(t, "testdata/dotnet/Chains.cs"))
	r := begin(t, 997, pid)
	waitFor(t, r.Unwinder(), pid, unwind.DotNet)
	time.Sleep(2 * time.Second) // methods are compiled again while they are young
	var all, whole, nameless, wrong int64
	seen := map[string]int64{}
	for _, o := range cut(t, r, 4*time.Second) {
		all += o.samples
		if o.end == profile.EndComplete {
			whole += o.samples
		}
		for _, f := range o.frames {
			if f.Kind == profile.KindJIT || strings.HasPrefix(f.Function, "System.Private.CoreLib.dll+") {
				nameless += o.samples
				break
			}
		}
		chain := own(o)
		seen[chain] += o.samples
		if chain != "" && o.end == profile.EndComplete && !dotnetChains.MatchString(chain) {
			wrong += o.samples
			t.Logf("%d samples of %q, which cannot be: %v", o.samples, chain, o.chain(profile.KindDotNet))
		}
	}
	if tooMany(wrong, all) {
		t.Errorf("%d of %d samples show calls that cannot be", wrong, all)
	}
	t.Logf("%d samples, %d whole, %d with code that has no name; chains: %v", all, whole, nameless, seen)
	if all < 200 {
		t.Fatalf("%d samples", all)
	}
	if float64(whole) < 0.985*float64(all) {
		t.Errorf("%d of %d stacks are whole", whole, all)
	}
	if float64(nameless) > 0.015*float64(all) {
		t.Errorf("%d of %d stacks have code without a name", nameless, all)
	}
	for _, chain := range []string{
		"Main Run Recursing" + strings.Repeat(" Descend", 21) + " Burn",
		"Main Run Boxing Keep Burn",
		"Main Run Measuring Area", // which keeps no frame
		"Main Run Sorting Compare Burn",
	} {
		if seen[chain] == 0 {
			t.Errorf("%q was not seen", chain)
		}
	}
}

// TestDotNetNames asserts that generic classes keep their types, and that code
// compiled ahead is named and walked too.
func TestDotNetNames(t *testing.T) {
	needsBPF(t)
	pid := launch(t, dotnet(t, "testdata/dotnet/Chains.cs"))
	r := begin(t, 997, pid)
	waitFor(t, r.Unwinder(), pid, unwind.DotNet)
	wanted := map[string]bool{
		"Atys.Victim.Box`1[System.Int32].Keep":                 false,
		"Atys.Victim.Box`1[System.__Canon].Keep":               false,
		"System.Threading.ThreadPoolWorkQueue.Dispatch":        false, // compiled ahead
		"System.Collections.Generic.List`1[System.Int32].Sort": false,
	}
	missing := len(wanted)
	for tries := 0; missing > 0 && tries < 5; tries++ {
		for _, o := range cut(t, r, 2*time.Second) {
			for _, f := range o.frames {
				if there, ok := wanted[f.Function]; ok && !there && f.Kind == profile.KindDotNet {
					wanted[f.Function] = true
					missing--
				}
			}
		}
	}
	for name, there := range wanted {
		if !there {
			t.Errorf("%s was not seen", name)
		}
	}
}
