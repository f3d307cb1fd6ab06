// Package harness is what benchmarks share: commands timed with all they start, and tables.
package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

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

// Build builds the atys of this tree and gives its path.
func Build(dir string) (string, error) {
	path := filepath.Join(dir, "atys")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/atys")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build atys (run this from the top of the tree): %w: %s", err, out)
	}
	return path, nil
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
func Header(w io.Writer, command string) {
	fmt.Fprintf(w, "%s\n%s, %s\n\n", command, time.Now().Format("2006-01-02"), Machine())
}

// Table is rows of cells, printed in columns.
type Table struct{ rows [][]string }

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Print prints the table as Markdown, so that a document can take it as it is.
func (t *Table) Print(w io.Writer) error {
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

// Main runs a benchmark, with an error on standard error and a status.
func Main(run func(ctx context.Context) error) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "benchmarks of the kernel part need root")
		os.Exit(2)
	}
	// The first signal ends what was started; a second kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
