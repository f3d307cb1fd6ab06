package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// program is something that a development machine runs all day.
type program struct {
	name  string
	needs string // the command without which it is left out
	// script runs it until it is ended. $0 is a directory for what it writes.
	script string
}

// Each keeps a part of a CPU busy, with pauses: what is measured is us, not them.
var programs = []program{
	{"Node", "node", `exec node -e '
const parse = n => JSON.parse(JSON.stringify(Array.from({length: n}, (_, i) => ({i, s: "x".repeat(i % 50)}))));
const sort = n => Array.from({length: n}, Math.random).sort();
setInterval(() => { parse(2000); sort(20000); "abc abd".replace(/ab./g, m => m + m); }, 100);'`},
	{"a JVM", "java", `cat > "$0/Work.java" <<'END'
import java.util.*; import java.util.stream.*;
public class Work {
	public static void main(String[] a) throws Exception {
		for (Random r = new Random(1);; Thread.sleep(100)) {
			List<Double> l = r.doubles(20000).boxed().sorted().collect(Collectors.toList());
			if (String.format("%s", l.stream().mapToDouble(x -> x).sum()).isEmpty()) return;
		}
	}
}
END
exec java "$0/Work.java"`},
	{"Chromium", "chromium", `echo '<script>setInterval(() => { let s = ""; for (let i = 0; i < 20000; i++) s += Math.sin(i); document.title = s.length; }, 100)</script>' > "$0/page.html"
exec chromium --headless --no-sandbox --disable-gpu --user-data-dir="$0/chromium" --remote-debugging-port=0 "file://$0/page.html"`},
	{"Go tools", "go", `export GOCACHE="$0/go-cache" GOFLAGS=-mod=mod
while :; do go build -a -o /dev/null strconv; go vet errors; sleep 2; done`},
	{"gcc", "gcc", `while :; do echo '#include <stdio.h>
int main(void) { for (int i = 0; i < 1000; i++) printf("%d", i); }' | gcc -O2 -x c -o "$0/out" - && "$0/out" > /dev/null; sleep 0.3; done`},
	{"Python", "python3", `exec python3 -c '
import json, time
while True:
    json.loads(json.dumps([{"i": i, "s": "x" * (i % 50)} for i in range(2000)])); sorted(range(20000), key=str); time.sleep(0.1)'`},
}

// work is the programs that are running.
type work struct {
	names []string
	all   []*exec.Cmd
}

func startWork(ctx context.Context, dir string) (*work, error) {
	w := &work{}
	for i, p := range programs {
		if _, err := exec.LookPath(p.needs); err != nil {
			continue
		}
		own := filepath.Join(dir, fmt.Sprint("work", i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, errors.Join(err, w.end())
		}
		c := exec.CommandContext(ctx, "sh", "-c", p.script, own)
		c.Env = append(os.Environ(), "HOME="+own)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("start %s: %w", p.name, err), w.end())
		}
		w.names, w.all = append(w.names, p.name), append(w.all, c)
	}
	return w, nil
}

// end ends all of it, with what it has started.
func (w *work) end() error {
	for i, c := range w.all {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // it may have ended
		if err := c.Wait(); c.ProcessState == nil {
			return fmt.Errorf("end %s: %w", w.names[i], err)
		}
	}
	return nil
}
