package kernels

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRecordsRoundTrip(t *testing.T) {
	var line bytes.Buffer
	r := NewRecorder(&line)
	long := bytes.Repeat([]byte("\x00\n@atys done\n\xff"), 2000)
	r.Output(1, 2).Write([]byte("from the background"))
	r.Output(0, 1).Write(long)
	fmt.Fprintf(&line, "noise\n%s\n", strings.Repeat("n", 3*maxRecord))
	r.End(0, 0, 5*time.Second, "exit status 0")
	r.End(1, -1, time.Millisecond, "signal: \"x\"\n")
	if err := r.Done(); err != nil {
		t.Fatal(err)
	}
	got, err := ParseRecords(&line, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{
		{Command: "a", Stdout: long, Exit: 0, Duration: 5 * time.Second, Status: "exit status 0"},
		{Command: "b", Stderr: []byte("from the background"), Exit: -1, Duration: time.Millisecond, Status: "signal: \"x\"\n"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRecordsOverTheLimit(t *testing.T) {
	var line bytes.Buffer
	r := NewRecorder(&line)
	r.Output(0, 1).Write(make([]byte, OutputLimit-1))
	r.Output(0, 1).Write([]byte("abc"))
	r.End(0, 0, 0, "")
	r.Done()
	got, err := ParseRecords(&line, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got[0].Stdout) != OutputLimit || got[0].Dropped != 2 {
		t.Errorf("kept %d bytes and dropped %d, want %d and 2", len(got[0].Stdout), got[0].Dropped, OutputLimit)
	}
}

func TestParseRecordsDamaged(t *testing.T) {
	const end = "@atys end 0 0 1 0 0 0 \"\"\n"
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "stopped before"},
		{"no done", end, "stopped before"},
		{"half a line", "@atys do", "stopped before"},
		{"no end", "@atys done\n", "stopped before"},
		{"lost output", "@atys out 0 1 YQ==\n" + end, "output was lost"},
		{"bad base64", "@atys out 0 1 Y\n", "line 1: damaged output"},
		{"bad stream", "@atys out 0 3 YQ==\n", "unknown stream"},
		{"bad number", "x\n@atys out 1 1 YQ==\n", "line 2: no command has the number"},
		{"bad kind", "@atys on 0 1 YQ==\n", "unknown kind"},
		{"after its end", end + end, "after its end"},
		{"short end", "@atys end 0 0 1 0 0 0\n", "5 fields"},
		{"exit", "@atys end 0 256 1 0 0 0 \"\"\n", "out of range"},
		{"status", "@atys end 0 0 1 0 0 0 \"\n", "status"},
		{"too long", "@atys out 0 1 " + strings.Repeat("A", maxRecord), "buffer full"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseRecords(strings.NewReader(tt.text), []string{"a"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if len(got) != 1 || got[0].Command != "a" {
				t.Errorf("results %+v, want one for the command", got)
			}
		})
	}
	got, _ := ParseRecords(strings.NewReader("@atys out 0 1 YQ==\n"), []string{"a"})
	if want := (Result{Command: "a", Stdout: []byte("a"), Exit: -1, Status: Unfinished}); !reflect.DeepEqual(got[0], want) {
		t.Errorf("cut off: got %+v, want %+v", got[0], want)
	}
}

// Whatever a command prints, and whatever other lines the machine leaves
// between records, the output arrives as it was.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("out"), []byte("noise\n"), 0)
	f.Add([]byte("@atys done\n"), bytes.Repeat([]byte("x"), maxRecord+1), -1)
	f.Fuzz(func(t *testing.T, out, noise []byte, exit int) {
		if exit < -1 || exit > 255 || bytes.Contains(noise, []byte(recordMark)) {
			t.Skip()
		}
		var line bytes.Buffer
		r := NewRecorder(&line)
		r.Output(0, 1).Write(out)
		line.Write(noise)
		line.WriteByte('\n')
		r.Output(0, 2).Write(out)
		r.End(0, exit, 1, string(out))
		r.Done()
		got, err := ParseRecords(&line, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[0].Stdout, out) || !bytes.Equal(got[0].Stderr, out) || got[0].Exit != exit {
			t.Errorf("got %+v, want %q twice and exit %d", got[0], out, exit)
		}
	})
}

// What parses is written again to the same results.
func FuzzParseRecords(f *testing.F) {
	f.Add([]byte("@atys out 0 1 YQ==\n@atys end 0 0 1 1 0 0 \"\"\n@atys end 1 -1 0 0 0 0 \"x\"\n@atys done\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		commands := []string{"a", "b"}
		first, err := ParseRecords(bytes.NewReader(text), commands)
		if err != nil {
			return
		}
		var line bytes.Buffer
		rec := NewRecorder(&line)
		for i := range first {
			r := &first[i]
			rec.Output(i, 1).Write(r.Stdout)
			rec.Output(i, 2).Write(r.Stderr)
			rec.End(i, r.Exit, r.Duration, r.Status)
			r.Dropped = 0 // comes from writing too much
		}
		rec.Done()
		again, err := ParseRecords(&line, commands)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, first) {
			t.Errorf("got %+v, want %+v", again, first)
		}
	})
}

func TestResultErr(t *testing.T) {
	for _, tt := range []struct {
		result Result
		want   string
	}{
		{Result{Command: "a"}, ""},
		{Result{Command: "a", Exit: 2, Status: "exit status 2"}, `command "a": exit status 2`},
		{Result{Command: "a", Exit: -1, Status: "signal: killed", Stderr: []byte("out\x1b of\n")}, `command "a": signal: killed: "out\x1b of"`},
	} {
		got := ""
		if err := tt.result.Err(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("Err() = %s, want %s", got, tt.want)
		}
	}
}

func TestMachineErrorShowsConsole(t *testing.T) {
	console := &tail{limit: 10}
	for range 3 {
		fmt.Fprint(console, "0123456789abcdef")
	}
	results := []Result{{Command: "one"}, {Command: "two", Status: Unfinished}}
	err := machineError(ErrNotDone, Kernel{Release: "6.1"}, results, console.kept)
	const want = "kernel \"6.1\", during \"two\": the machine stopped before its last command ended\nconsole:\n6789abcdef"
	if err.Error() != want || !errors.Is(err, ErrNotDone) {
		t.Errorf("got %q, want %q", err, want)
	}
}
