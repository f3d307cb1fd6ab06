package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
)

// sources are the programs by family.
var sources = map[string]string{
	"java": "Burning.java", "python": "burning.py", "node": "burning.js", "ruby": "burning.rb",
	"php": "burning.php", "perl": "burning.pl", "dotnet": "Burning.cs",
}

// testdata is where they are: this runs at the top of the tree.
const testdata = "bench/truth/testdata"

// phpJIT is PHP whose code is compiled: that code does not say in which line it is.
const phpJIT = "php-jit"

// prepare finds the runtimes that are asked for, and compiles what must be.
func prepare(ctx context.Context, dir string) ([]*program, error) {
	all, err := runtimes.All()
	if err != nil {
		return nil, err
	}
	var modes []runtimes.Runtime
	for _, r := range all {
		modes = append(modes, r)
		switch r.Family {
		case "java":
			modes = append(modes, r.With(r.Name+"-int", "-Xint"))
		case "php":
			modes = append(modes, r.With(phpJIT, "-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=32M", "-d", "opcache.jit=tracing"))
		}
	}
	chosen, err := runtimes.Choose(modes, *only)
	if err != nil {
		return nil, err
	}
	programs := make([]*program, 0, len(chosen))
	compiled := map[string][]string{}
	for _, r := range chosen {
		p := &program{runtime: r}
		source := filepath.Join(testdata, sources[r.Family])
		if compiled[r.Family] == nil {
			if compiled[r.Family], err = compile(ctx, r.Family, source, dir); err != nil {
				return nil, err
			}
		}
		p.args = compiled[r.Family]
		if r.Family != "dotnet" && r.Name != phpJIT { // whose lines are not told
			if p.places, err = readPlaces(source); err != nil {
				return nil, err
			}
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// compile gives what a runtime is told to run.
func compile(ctx context.Context, family, source, dir string) ([]string, error) {
	switch family {
	case "java":
		_, err := harness.Run(ctx, "javac", "--release", "11", "-g", "-d", dir, source)
		return []string{"-cp", dir, "Burning"}, err
	case "dotnet":
		if _, err := exec.LookPath("mcs"); err != nil {
			return nil, fmt.Errorf("compile %s: %w: install mono-mcs, or choose others with -only", source, err)
		}
		program := filepath.Join(dir, "burning.dll")
		if _, err := harness.Run(ctx, "mcs", "-langversion:7", "-optimize+", "-out:"+program, source); err != nil {
			return nil, err
		}
		config := `{"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":"3.1.0"}}}`
		return []string{program}, os.WriteFile(filepath.Join(dir, "burning.runtimeconfig.json"), []byte(config), 0o644)
	}
	return []string{source}, nil
}

// place is a comment at the end of a line that burns.
var place = regexp.MustCompile(`(?://|#) burns (\w+)$`)

// readPlaces finds what burns in each line of a source.
func readPlaces(source string) (map[int]string, error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return nil, fmt.Errorf("%w (run this from the top of the tree)", err)
	}
	places := map[int]string{}
	for i, line := range bytes.Split(text, []byte("\n")) {
		if m := place.FindSubmatch(line); m != nil {
			places[i+1] = string(m[1])
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("%s: no line says that it burns", source)
	}
	return places, nil
}
