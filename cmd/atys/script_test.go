package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"atys.dev/atys/internal/corpus"
	"atys.dev/atys/test/vacant"
)

// TestMain lets scripts run this binary as atys.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"atys": main})
}

var update = flag.Bool("update", false, "write what commands print into the scripts")

// TestScripts runs commands as typed, those of testdata, with the corpus in
// the folder corpus and an unused address in $ADDRESS. Conditions: [root].
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup:         setupScript,
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"ship": ship, "timed": timed},
		Condition: func(name string) (bool, error) {
			return name == "root" && os.Geteuid() == 0, nil
		},
	})
}

func setupScript(env *testscript.Env) error {
	address, err := vacant.Address()
	if err != nil {
		return err
	}
	env.Setenv("ADDRESS", address)
	for _, folder := range []string{"folded", "perf", "pprof"} {
		for _, name := range corpus.Names(folder) {
			path := filepath.Join(env.WorkDir, "corpus", name)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				return err
			}
			if err := os.WriteFile(path, corpus.Read(name), 0o666); err != nil {
				return err
			}
		}
	}
	return nil
}
