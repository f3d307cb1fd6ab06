package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/bench/runtimes"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/unwind"
)

// testdata is where workloads are: this runs at the top of the tree.
const testdata = "bench/efficiency/testdata"

// hot is a function whose CPU time a workload measures, with what it calls.
type hot struct {
	name     string // in the workload's log
	function string // in a profile; with a file: without its class
	file     string // the end of the file's name; "": the function's name is enough
}

// is tells whether a frame is of the function.
func (h hot) is(f *profile.Frame) bool {
	if h.file == "" {
		return strings.ReplaceAll(f.Function, "/", ".") == h.function // async-profiler writes packages so
	}
	return f.Function[strings.LastIndexByte(f.Function, '.')+1:] == h.function && strings.HasSuffix(f.File, h.file)
}

// alike are functions of which logs and profiles have the same names.
func alike(names ...string) (all []hot) {
	for _, name := range names {
		all = append(all, hot{name: name, function: name})
	}
	return all
}

// par is what a policy is to be as good as: a fixed rate, with a tenth of the error at another as margin.
type par struct{ Reference, Scale int }

// workload is a program of testdata.
type workload struct {
	hot      []hot
	language unwind.Language // that walks are to follow; 0 of none
	managed  bool            // there is such a language
	par      par             // what the issue asks for
	command  func(ctx context.Context, dir string, o load) ([]string, error)
}

// setup gives unwinding tables the most room there is (--unwind-memory 128): that of
// libtorch_cpu does not fit into what a recording has by default.
func setup() recorder.Setup { return recorder.Setup{Rows: unwind.MaxRows} }

// load says how much of a workload there is to be.
type load struct {
	busy, threads int
	window        time.Duration
	steps         schedule
	runtime       string // the JVM
	python        string
	onednn        bool
}

func (l load) seconds() string { return strconv.FormatFloat(l.window.Seconds(), 'g', -1, 64) }

// business are the functions of the supermarket.
var business = alike("InStorePurchase.doCheckout", "InStorePurchase.doPurchase", "OnlinePurchase.doCheckout",
	"SupermarketAudit.analyze", "SupermarketAudit.summarizeReceipt", "CategoryAssociation.execute")

var workloads = map[string]workload{
	"java": {
		hot: business, language: unwind.Java, managed: true, par: par{10000, 500}, command: java,
	},
	"python": {
		hot: []hot{{"forward", "forward", "linear.py"}, {"_conv_forward", "_conv_forward", "conv.py"},
			{"_max_pool2d", "_max_pool2d", "functional.py"}, {"relu", "relu", "functional.py"}},
		language: unwind.Python, managed: true, par: par{800, 99}, command: python,
	},
	"native": {
		hot:     alike("parse_records", "sort_runs", "match_pattern", "pack_block", "sum_matrix", "walk_list"),
		par:     par{10000, 500},
		command: native,
	},
}

// findWorkload gives one by its name.
func findWorkload(name string) (workload, error) {
	w, ok := workloads[name]
	if !ok {
		return w, fmt.Errorf("-workload %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(workloads)), ", "))
	}
	return w, nil
}

func java(ctx context.Context, dir string, o load) ([]string, error) {
	chosen, err := runtimes.Chosen(o.runtime)
	if err != nil {
		return nil, err
	}
	if len(chosen) != 1 || chosen[0].Family != "java" {
		return nil, fmt.Errorf("-jvm %s: name one JVM", o.runtime)
	}
	if _, err := harness.Run(ctx, "javac", "--release", "11", "-g", "-d", dir, filepath.Join(testdata, "Supermarket.java")); err != nil {
		return nil, err
	}
	command := slices.Concat(chosen[0].Command, []string{"-Xmx256m", "-XX:CompileCommand=quiet"}, apart())
	return append(command, "-cp", dir, "Supermarket", o.seconds(), strconv.Itoa(o.busy), strconv.Itoa(o.threads), o.steps.String()), nil
}

// apart keeps HotSpot from compiling business functions into their caller, for which real
// ones are too large. Inside one method it tells inlined loops apart at safepoints only,
// whoever asks (-XX:+DebugNonSafepoints is off): shares were off by 20 points then.
func apart() (options []string) {
	for _, h := range business {
		options = append(options, "-XX:CompileCommand=dontinline,"+h.function)
	}
	return options
}

func python(ctx context.Context, _ string, o load) ([]string, error) {
	if _, err := harness.Run(ctx, o.python, "-c", "import torch"); err != nil {
		return nil, fmt.Errorf("%s has no PyTorch: apt-get install --no-install-recommends python3-torch (of Debian, some 500 MB), or name another Python with -python: %w", o.python, err)
	}
	command := []string{o.python, filepath.Join(testdata, "vgg16.py"), o.seconds(), o.steps.String()}
	if o.onednn {
		command = append(command, "onednn")
	}
	return command, nil
}

func native(ctx context.Context, dir string, o load) ([]string, error) {
	program := filepath.Join(dir, "phases")
	if _, err := harness.Run(ctx, "gcc", "-O2", "-g", "-pthread", "-o", program, filepath.Join(testdata, "phases.c")); err != nil {
		return nil, err
	}
	return []string{program, o.seconds(), strconv.Itoa(o.busy), o.steps.String()}, nil
}
