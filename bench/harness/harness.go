// Package harness is what benchmarks share: how they start, commands timed with all they start, and tables.
package harness

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/format"
	"atys.dev/atys/internal/stats"
)

// Spent is what a command and all it waited for used.
type Spent struct {
	CPU, Wall time.Duration
	MaxRSS    int64 // bytes, of the largest process
	Output    []byte
}

// Run runs a command to its end. Its own failure is an error with its output.
func Run(ctx context.Context, name string, args ...string) (Spent, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Spent{}, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLines(out))
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	s := Spent{CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), Wall: time.Since(began), Output: out}
	if ok {
		s.MaxRSS = usage.Maxrss << 10
	}
	return s, nil
}

func lastLines(out []byte) string {
	text := strings.TrimSpace(string(out))
	if i := len(text) - 400; i > 0 {
		text = "..." + text[i:]
	}
	return text
}

// Machine describes where a table was measured.
func Machine() string {
	var uts unix.Utsname
	release := "unknown kernel"
	if unix.Uname(&uts) == nil {
		release = "Linux " + unix.ByteSliceToString(uts.Release[:])
	}
	return fmt.Sprintf("%s, %s, %d CPUs, load %s", release, cpuModel(), runtime.NumCPU(), load())
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// Header prints what every table starts with.
func Header() {
	fmt.Printf("%s\n%s, %s\n\n", Command(), time.Now().Format("2006-01-02"), Machine())
}

func name() string { return filepath.Base(os.Args[0]) }

// Command is the command that does the same again, with defaults of today. Flags that
// are off, and those without a description, are left out.
func Command() string {
	words := []string{"go run ./bench/" + name()}
	flag.VisitAll(func(f *flag.Flag) {
		switch value := f.Value.String(); {
		case f.Usage == "" || value == "" || value == "false":
		case value == "true":
			words = append(words, "-"+f.Name)
		case strings.ContainsAny(value, " ;&|<>*?()'\"$"):
			words = append(words, "-"+f.Name, "'"+strings.ReplaceAll(value, "'", `'\''`)+"'")
		default:
			words = append(words, "-"+f.Name, value)
		}
	})
	return strings.Join(append(words, flag.Args()...), " ")
}

// Table is rows of cells, printed in columns.
type Table struct{ rows [][]string }

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table to standard output.
func (t *Table) Print() error { return t.Write(os.Stdout) }

// Write writes the table as Markdown, so that a document can take it as it is.
func (t *Table) Write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	for i, row := range t.rows {
		fmt.Fprintf(tw, "| %s |\n", strings.Join(row, "\t| "))
		if i == 0 {
			rule := make([]string, len(row))
			for j := range rule {
				rule[j] = "---"
			}
			fmt.Fprintf(tw, "| %s |\n", strings.Join(rule, "\t| "))
		}
	}
	return tw.Flush()
}

// Ratio writes the ratio of paired rounds with its interval.
func Ratio(a, b []float64) string {
	i, _, err := stats.RatioInterval(a, b)
	if err != nil {
		return "? (" + err.Error() + ")"
	}
	return fmt.Sprintf("%.2fx (%.2f to %.2f)", i.Value, i.Low, i.High)
}

// Middle writes a median with its interval.
func Middle(values []float64, unit string) string {
	i, _ := stats.MedianInterval(values)
	return fmt.Sprintf("%.3g %s (%.3g to %.3g)", i.Value, unit, i.Low, i.High)
}

// Percent writes a share.
func Percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }

// Percents writes a share with its interval.
func Percents(i stats.Interval) string {
	return fmt.Sprintf("%.1f%% (%.1f to %.1f)", 100*i.Value, 100*i.Low, 100*i.High)
}

// Main parses the flags and runs a benchmark, in a directory that is removed at its end.
// An error goes to standard error and becomes a status.
func Main(run func(ctx context.Context, dir string) error) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "benchmarks of the kernel part need root")
		os.Exit(2)
	}
	flag.Parse()
	if err := runIn(run); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runIn(run func(ctx context.Context, dir string) error) error {
	// The first signal ends what was started; a second kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	dir, err := os.MkdirTemp("", "atys-"+name())
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return run(ctx, dir)
}

// CountingBPF is a benchmark that the kernel measures the time of BPF programs for.
func CountingBPF(run func(ctx context.Context, dir string) error) func(ctx context.Context, dir string) error {
	return func(ctx context.Context, dir string) error {
		statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		if err != nil {
			return fmt.Errorf("count the time of BPF programs: %w", err)
		}
		defer statistics.Close()
		return run(ctx, dir)
	}
}

// RecordTimed runs "atys record --timed", which writes to a path, and reads what it wrote.
// The lead is when that began, after the command was started.
func RecordTimed(c *exec.Cmd, path string) (w *profile.Window, lead time.Duration, err error) {
	began := time.Now()
	if out, err := c.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("atys record: %w: %s", err, out)
	}
	if w, err = format.Read(path); err != nil {
		return nil, 0, err
	}
	return w, w.Start.Sub(began), nil
}

// OperatorToken is the file of the token that a server makes below its data directory.
// It takes connections a moment before it has.
func OperatorToken(data string) string {
	token := filepath.Join(data, "operator.token")
	for range 100 {
		if _, err := os.Stat(token); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return token
}

// Sleep waits, unless all is to end.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Until tries something until it succeeds, for ten seconds: a server that was started
// does not listen at once.
func Until(try func() error) (err error) {
	for range 200 {
		if err = try(); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// Get asks for a page.
func Get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}
