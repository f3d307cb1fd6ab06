package deploy

import (
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// recipe is the image's.
func recipe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/image/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// words reads a line of the recipe that is a list of words.
func words(t *testing.T, text, key string) (list []string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + key + ` (\[.*\])$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the recipe has no %s", key)
	}
	if err := json.Unmarshal([]byte(m[1]), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRecipe builds with the compiler that go.mod names and the Makefile's command.
func TestRecipe(t *testing.T) {
	text := recipe(t)
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(module)
	if version == nil || !strings.Contains(text, "\nFROM golang:"+string(version[1])+" AS build\n") {
		t.Errorf("the recipe does not build with go %s, as go.mod wants", version[1])
	}
	if !strings.Contains(text, "\nRUN make build\n") {
		t.Error("the recipe has a build of its own")
	}
	if out, err := exec.Command("make", "-C", "../..", "-n", "build").Output(); err != nil || !regexp.MustCompile(`CGO_ENABLED=0 go build -trimpath -ldflags .* -o bin/atys \./cmd/atys\n`).Match(out) {
		t.Errorf("make build is %s, %v", out, err)
	}
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Section(".interp") != nil || file.Section(".dynamic") != nil {
		t.Error("the program is not static: there is nothing in the image for it to load")
	}
}

// TestImage runs what the image runs, as its user, in a root that holds what the
// image holds: no engine is needed for that.
func TestImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	text := recipe(t)
	const user = 65532
	if !strings.Contains(text, "\nUSER 65532:65532\n") {
		t.Error("the image is not of user 65532")
	}
	root := filepath.Join(filepath.Dir(program), "image")
	in := func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{"etc/ssl/certs", "etc/atys", "var/lib/atys"} {
		if err := os.MkdirAll(in(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	s.Close()
	made := s.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	reader := in("reader.token")
	if out, err := exec.Command(program, "token", "--tokens", in("etc/atys/tokens"), "--role", "reader", "-o", reader).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.Link(program, in("atys")), os.Chown(in("var/lib/atys"), user, user), os.Chown(in("etc/atys/tokens"), user, user),
		os.WriteFile(in("etc/atys/server.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made.Certificate[0]}), 0o644),
		os.WriteFile(in("etc/atys/server.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600), os.Chown(in("etc/atys/server.key"), user, user)); err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t)
	args := append(words(t, text, "ENTRYPOINT"), words(t, text, "CMD")...)
	for i := range args {
		if args[i] == ":4300" { // which another one may have
			args[i] = listen
		}
	}
	c := exec.Command(args[0], args[1:]...)
	c.Env, c.Dir = []string{"PATH=/"}, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}, Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	c.Stderr, c.Stdout = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var verdict []byte
	eventually(t, "the server of the image can be asked", func() bool {
		verdict, err = exec.Command(program, "doctor", "--server", "https://"+listen, "--tls-ca", in("etc/atys/server.pem"), "--token-file", reader).CombinedOutput()
		return err == nil
	}, func() string { return string(verdict) })
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, said.String())
	}
}
