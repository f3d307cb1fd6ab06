package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/sampler/external"
)

type targetsFlags struct {
	displayFlags
	pids   []int
	name   string
	asJSON bool
}

func targetsCommand() *cobra.Command {
	var f targetsFlags
	c := &cobra.Command{
		Use:   "targets [-p PID | --name REGEX]",
		Short: "List what runs here: services, languages and versions, and what a profile of each would lack",
		Long: `targets lists every process that has code to profile: what it is called as a
service, the container or unit it runs in, the language runtimes in it with their
versions, and where something will be missing from its profile, why. It only
reads; the processes do not notice.`,
		Example: `  atys targets
  atys targets --name gunicorn
  atys targets --json`,
		Args:   noArgs,
		PreRun: endOnSignal,
		RunE: func(*cobra.Command, []string) error {
			o, err := f.tableOptions()
			if err != nil {
				return err
			}
			return listTargets(os.Stdout, os.Stderr, f, o)
		},
	}
	flags := c.Flags()
	flags.IntSliceVarP(&f.pids, "pid", "p", nil, "only these processes")
	flags.StringVar(&f.name, "name", "", "only processes whose name or command line matches this regular expression")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	f.displayFlags.add(c)
	return c
}

func listTargets(w, log io.Writer, f targetsFlags, o render.Options) error {
	var d lang.Detector
	pids, err := f.choose(d.FS)
	if err != nil {
		return err
	}
	targets, out := d.Targets(pids)
	k := kernels{fs: d.FS, noBPF: features.HaveProgramType(ebpf.PerfEvent)}
	if f.asJSON {
		return targetsJSON(w, targets, k)
	}
	if err := targetsText(w, targets, k, o); err != nil {
		return err
	}
	if k.noBPF != nil {
		fmt.Fprintf(log, "atys: BPF cannot be used (%v; \"atys doctor\" says more): KERNEL is what else there is\n", k.noBPF)
	}
	if n := unreadable(targets); n > 0 {
		fmt.Fprintf(log, "atys: %d processes may not be read: %s\n", n, proc.AsRoot(", as their user, or with CAP_SYS_PTRACE", "CAP_SYS_PTRACE"))
	}
	if out.KernelThreads+out.Zombies > 0 {
		fmt.Fprintf(log, "atys: left out, having no code to profile: kernel threads %d, zombies %d\n", out.KernelThreads, out.Zombies)
	}
	return nil
}

// choose returns the processes asked for.
func (f *targetsFlags) choose(procfs proc.FS) ([]int, error) {
	switch {
	case len(f.pids) > 0 && f.name != "":
		return nil, &usageError{errors.New("-p and --name exclude each other: give one")}
	case len(f.pids) > 0:
		for _, pid := range f.pids {
			if _, err := procfs.Check(pid); err != nil {
				return nil, err
			}
		}
		return f.pids, nil
	case f.name != "":
		re, err := regexp.Compile(f.name)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--name %q: %w", f.name, err)}
		}
		found, err := procfs.Find(re)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no process matches %q (\"atys targets\" lists them all)", f.name)
		}
		pids := make([]int, len(found))
		for i, p := range found {
			pids[i] = p.PID
		}
		return pids, nil
	}
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, err
	}
	others := pids[:0]
	for _, pid := range pids {
		if pid != os.Getpid() {
			others = append(others, pid)
		}
	}
	return others, nil
}

// kernels tell what will sample a process, as --kernel auto chooses it.
type kernels struct {
	fs    proc.FS
	noBPF error // why BPF cannot be used here
}

// of names the kernel; "" if nothing can sample the process.
func (k *kernels) of(t *lang.Target) string {
	if t.Err != nil {
		return ""
	}
	if k.noBPF == nil {
		return kernelBPF
	}
	other, _, err := external.Choose(k.fs, []int{t.PID}, nil, false)
	if err != nil {
		return ""
	}
	return string(other)
}

// missing says what a profile of the process will lack that its kernel takes.
// What the target itself tells is of bpf: others know less.
func (k *kernels) missing(t *lang.Target) []string {
	switch kernel := external.Kernel(k.of(t)); kernel {
	case external.Perf, external.PySpy:
		return lackedBy(kernel, t.Runtimes)
	}
	return t.Missing()
}

// lackedBy says which functions another profiler does not know.
func lackedBy(kernel external.Kernel, runtimes []lang.Runtime) (reasons []string) {
	if kernel == external.PySpy {
		return []string{"py-spy shows functions of Python alone"}
	}
	for _, r := range runtimes {
		switch r.Kind {
		case lang.Native, lang.NativeImage, lang.Go:
		case lang.Ruby, lang.PHP, lang.Perl:
			reasons = append(reasons, "perf shows no functions of "+r.Name())
		default:
			reasons = append(reasons, "perf shows functions of "+r.Name()+" as far as it writes a perf map")
		}
	}
	return reasons
}

// isUnreadable tells whether a process was not looked at for lack of permission.
func isUnreadable(t *lang.Target) bool { return errors.Is(t.Err, fs.ErrPermission) }

func unreadable(targets []lang.Target) (n int) {
	for i := range targets {
		if isUnreadable(&targets[i]) {
			n++
		}
	}
	return n
}

// targetsText prints a table.
func targetsText(w io.Writer, targets []lang.Target, k kernels, o render.Options) error {
	rows := [][]string{{"PID", "SERVICE", "RUNS IN", "LANGUAGES", "KERNEL", "MISSING"}}
	for i := range targets {
		t := &targets[i]
		languages := make([]string, len(t.Runtimes))
		for j, r := range t.Runtimes {
			languages[j] = r.Name()
		}
		missing := strings.Join(k.missing(t), "; ")
		if isUnreadable(t) {
			missing = "it may not be read" // what helps is said once, below
		}
		rows = append(rows, []string{strconv.Itoa(t.PID), shortID(t.Service), runsIn(t.Service.Workload),
			strings.Join(languages, ", "), cmp.Or(k.of(t), "-"), missing})
	}
	return writeRows(w, rows, o)
}

const shortIDLength = 12 // of a container's id, as docker ps shows it

// shortID is a service's name; a container's id, if it is that, cut short.
func shortID(s lang.Service) string {
	if s.Source == lang.FromContainer {
		return s.Name[:min(len(s.Name), shortIDLength)]
	}
	return s.Name
}

// runsIn names the container or unit.
func runsIn(w proc.Workload) string {
	if w.Container != "" {
		return strings.TrimLeft(w.Runtime+" "+w.Container[:min(len(w.Container), shortIDLength)], " ")
	}
	if w.PodUID != "" {
		return "pod " + w.PodUID
	}
	return w.Unit
}

// What --json prints; its field names are stable.
type (
	targetJSON struct {
		PID              int           `json:"pid"`
		Name             string        `json:"name"`
		Service          string        `json:"service"`
		ServiceSource    string        `json:"service_source"`
		Instance         string        `json:"instance,omitempty"`
		Container        string        `json:"container,omitempty"`
		ContainerRuntime string        `json:"container_runtime,omitempty"`
		PodUID           string        `json:"pod_uid,omitempty"`
		Unit             string        `json:"unit,omitempty"`
		UnitUser         string        `json:"unit_user,omitempty"`
		Runtimes         []runtimeJSON `json:"runtimes"`
		Kernel           string        `json:"kernel"` // "" if nothing can sample it
		Missing          []string      `json:"missing"`
	}
	runtimeJSON struct {
		Kind    lang.Kind `json:"kind"`
		Vendor  string    `json:"vendor,omitempty"`
		Version string    `json:"version,omitempty"`
		Update  string    `json:"update,omitempty"`
		Engine  string    `json:"engine,omitempty"`
		Feature string    `json:"feature,omitempty"`
		JFR     *bool     `json:"jfr,omitempty"` // of JVMs only
		Libc    string    `json:"libc,omitempty"`
		Path    string    `json:"path,omitempty"`
		Walked  bool      `json:"walked"`
		Why     string    `json:"why,omitempty"`
	}
)

func targetsJSON(w io.Writer, targets []lang.Target, k kernels) error {
	out := []targetJSON{}
	for i := range targets {
		t := &targets[i]
		one := targetJSON{PID: t.PID, Name: t.Comm, Service: t.Service.Name, ServiceSource: string(t.Service.Source),
			Instance: t.Service.Instance, Container: t.Service.Container, ContainerRuntime: t.Service.Runtime, PodUID: t.Service.PodUID,
			Unit: t.Service.Unit, UnitUser: t.Service.User,
			Runtimes: []runtimeJSON{}, Kernel: k.of(t), Missing: append([]string{}, k.missing(t)...)}
		for _, r := range t.Runtimes {
			j := runtimeJSON{r.Kind, r.Vendor, r.Version, r.Update, r.Engine, r.Feature, nil, r.Libc, r.Path, r.Walked, r.Why}
			if r.Kind == lang.HotSpot || r.Kind == lang.OpenJ9 {
				j.JFR = &r.JFR
			}
			one.Runtimes = append(one.Runtimes, j)
		}
		out = append(out, one)
	}
	return printLegibleJSON(w, out)
}
