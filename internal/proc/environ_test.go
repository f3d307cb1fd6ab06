package proc

import (
	"bytes"
	"os"
	"os/exec"
	"reflect"
	"testing"
)

func TestParseEnviron(t *testing.T) {
	got := ParseEnviron([]byte("A=1\x00SECRET=x\x00B=a=b\x00A=2\x00broken\x00=\x00C="), "A", "B", "C", "D")
	want := map[string]string{"A": "1", "B": "a=b", "C": ""}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEnviron(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo ready; exec sleep 60")
	cmd.Env = append(os.Environ(), "OTEL_SERVICE_NAME=shop")
	pid := start(t, cmd)
	until(t, "the environment", func() bool {
		got, err := FS{}.Environ(pid, "OTEL_SERVICE_NAME")
		return err == nil && got["OTEL_SERVICE_NAME"] == "shop"
	})
}

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte("A=1\x00B=2\x00"), "A")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		for k, v := range ParseEnviron(data, name) {
			if k != name || !bytes.Contains(data, []byte(k+"="+v)) {
				t.Fatalf("%q=%q was not there", k, v)
			}
		}
	})
}
