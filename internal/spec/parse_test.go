package spec

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const full = `
kind: Profile
name: checkout-cpu
select: '{service="checkout",instance=~"web-.*"}'
kinds: [cpu]
events: [page-faults]
kernel: bpf
frequency: 99
window: 20s
threads: each
prometheus: {top: 5}
allowAttach: true
duration: 30m
instances: 3
---
kind: Profile
name: small
`

func TestParse(t *testing.T) {
	all, err := Parse(strings.NewReader(full))
	if err != nil || len(all) != 2 {
		t.Fatalf("%v: %v", all, err)
	}
	p := all[0]
	if p.Name != "checkout-cpu" || p.Select.String() != `{service="checkout",instance=~"web-.*"}` || p.Kernel != "bpf" || p.Frequency != 99 ||
		p.Window != 20*time.Second || p.Threads != ThreadsEach || p.Top != 5 || !p.AllowAttach || p.Duration != 30*time.Minute || p.Instances != 3 {
		t.Errorf("%+v", p)
	}
	if got := p.Recordings(); len(got) != 2 || got[0] != (Recording{"checkout-cpu", Measurement{Kind: KindCPU, Event: "cpu-clock", Rate: 99}}) ||
		got[1] != (Recording{"checkout-cpu/page-faults", Measurement{Kind: "page-faults", Event: "page-faults"}}) {
		t.Errorf("recordings %v", got)
	}
	if d := all[1]; d.Frequency != DefaultFrequency || d.Window != DefaultWindow || d.Threads != ThreadsPattern || d.Top != DefaultTop || !d.All() || d.Duration != 0 {
		t.Errorf("defaults: %+v", d)
	}
	if p.All() {
		t.Error("some of the targets are all of them")
	}
}

// TestRoundTrip writes profiles and reads them again.
func TestRoundTrip(t *testing.T) {
	all, err := Parse(strings.NewReader(full))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(all, Builtin()) {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJSON(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if byHand, err := Parse(strings.NewReader(string(text))); p.CheckNew() == nil && (err != nil || len(byHand) != 1) {
			t.Errorf("JSON in a file: %v", err)
		}
		if second, err := json.Marshal(again); err != nil || string(second) != string(text) {
			t.Errorf("%s became %s (%v)", text, second, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	const head = "kind: Profile\nname: x\n"
	tests := map[string]string{
		"":                                "no object",
		"kind: Pod\nname: x":              `kind: "Pod"`,
		"kind: Profile\nname: Not A Name": `name: "Not A Name"`,
		"kind: Profile\nname: builtin\nwindow: 1ms":  `name: "builtin": so is called`,
		head + "select: service=x":                   "select: ",
		head + "kinds: [lock]":                       `kinds: "lock" is not built yet`,
		head + "kinds: [cpu, cpu]":                   "named twice",
		head + "events: ['rm -rf /']":                `events: "rm -rf /"`,
		head + "events: ['../../x:y']":               `events: "../../x:y": want one of`,
		head + "events: ['page-fault']":              `events: "page-fault"`,
		head + "events: ['sched:sched_switch:u']":    `events: "sched:sched_switch:u"`,
		head + "events: ['sched:']":                  `events: "sched:"`,
		head + "events: [':u']":                      `events: ":u"`,
		head + "events: ['cycles:x:y']":              `events: "cycles:x:y"`,
		head + "kernel: magic":                       `kernel: "magic": want one of auto, bpf, perf, py-spy, async-profiler`,
		head + "kernel: async-profiler":              "allowAttach: false: async-profiler loads a library",
		head + "kernel: perf\nevents: [page-faults]": "events: page-faults: perf samples CPU time alone",
		head + "frequency: 50000":                    "frequency: 50000: want 1 to 20000",
		head + "frequency: 0":                        "frequency: 0",
		head + "frequency: .nan":                     "frequency",
		head + "frequency: {least: 19}":              "least",
		head + "window: 10":                          `window: "10"`,
		head + "window: 1ms":                         "window: 1ms: want 1s to 1h",
		head + "threads: some":                       `threads: "some"`,
		head + "pruning: P79.9":                      `pruning: "P79.9": want P80 to P100, such as P99`,
		head + "pruning: P100.1":                     `pruning: "P100.1": want P80 to P100`,
		head + "pruning: 99":                         `pruning: "99": want P80 to P100`,
		head + "pruning: P9e1":                       `pruning: "P9e1": want P80 to P100`,
		head + "pruning: p99":                        `pruning: "p99": want P80 to P100`,
		head + "prometheus: {top: 5000}":             "prometheus.top: 5000",
		head + "duration: -5s":                       `duration: "-5s"`,
		head + "instances: -1":                       "instances: -1",
		head + "colour: red":                         "colour",
		head + "select: [":                           "",
		head + `select: {service="a"}`:               `write select: '{service="a"}'`,
		head + "select: {a='b',c=~\"x{2}\"} # these": `write select: '{a=''b'',c=~"x{2}"}'`,
	}
	for text, want := range tests {
		all, err := Parse(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, %v; want an error with %q", text, all, err, want)
		}
	}
	if _, err := Parse(strings.NewReader(strings.Repeat(" ", maxFile+1))); err == nil {
		t.Error("a file without end is read")
	}
	// All that is wrong is told at once.
	_, err := Parse(strings.NewReader(head + "frequency: 50000\nwindow: 1ms\n---\nkind: Profile\nname: y\nthreads: some\n"))
	for _, want := range []string{"frequency", "window", "threads", `"x"`, `"y"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not tell of %s", err, want)
		}
	}
}

// TestKernels takes those that there are.
func TestKernels(t *testing.T) {
	for _, kernel := range kernels {
		p, err := ParseJSON([]byte(`{"kind":"Profile","name":"x","allowAttach":true,"kernel":"` + kernel + `"}`))
		if err != nil || p.Kernel != kernel || p.External() != (kernel != KernelAuto && kernel != KernelBPF) {
			t.Errorf("%s: %+v, %v", kernel, p, err)
		}
	}
}

func TestParseJSONRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"Profile","name":"x"} {}`:                      "follows",
		`{"kind":"Profile","name":"x","colour":1}`:              "colour",
		`{"kind":"Profile","name":"x","frequency":"much"}`:      "frequency",
		`{"kind":"Profile","name":"x","frequency":{"Fixed":9}}`: "frequency",
		`{"kind":"Profile","name":"X"}`:                         "name",
		"kind: Profile":                                         "",
	} {
		if p, err := ParseJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %+v, %v; want an error with %q", text, p, err, want)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"kind":"Profile","name":"x","frequency":1e3,"select":"{a=~\"b\"}"}`))
	f.Add([]byte(`{"kind":"Profile","name":"x","window":"20s","duration":"forever","instances":3,"frequency":{"min":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseJSON(text)
		if err != nil {
			return
		}
		if err := p.check(); err != nil {
			t.Errorf("%q was taken, and is wrong: %v", text, err)
		}
	})
}

// TestMeasure has events say what they measure, and whether that is time.
func TestMeasure(t *testing.T) {
	for event, want := range map[string]Measurement{
		"cpu":                       {Kind: KindCPU, Rate: 19},
		"cpu-clock":                 {Kind: KindCPU, Rate: 19},
		"task-clock:u":              {Kind: KindCPU, Rate: 19},
		"cycles:u":                  {Kind: "cycles"},
		"cpu-cycles":                {Kind: "cycles"},
		"faults":                    {Kind: "page-faults"},
		"sched:sched_switch":        {Kind: "sched:sched_switch", Every: 1},
		"syscalls:sys_enter_openat": {Kind: "syscalls:sys_enter_openat", Every: 1},
		"power:cpu-clock":           {Kind: "power:cpu-clock", Every: 1},
	} {
		if want.Event = event; Measure(event, 19) != want {
			t.Errorf("%s measures %+v, want %+v", event, Measure(event, 19), want)
		}
	}
	p, err := ParseJSON([]byte(`{"kind":"Profile","name":"x","kinds":["cpu"],"events":["cpu-clock","cpu-clock:u","task-clock","page-faults","faults","sched:sched_switch"]}`))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[2]string]bool{}
	for _, r := range p.Recordings() {
		if key := [2]string{r.Task, r.Kind}; seen[key] {
			t.Errorf("two recordings are of task %s and kind %s", r.Task, r.Kind)
		} else {
			seen[key] = true
		}
	}
}
