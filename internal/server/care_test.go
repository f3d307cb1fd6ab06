package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/backup"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/test/testwait"
)

// cared is a server whose store is on a disk.
type cared struct {
	*httptest.Server
	store  *disk.Store
	dir    string
	server *Server
	as     func(token string) *http.Client
	asAt   func(h *httptest.Server, token string) *http.Client
}

func careFor(t *testing.T, wrap func(*disk.Store) store.Store) *cared {
	t.Helper()
	dir := t.TempDir()
	kept, err := disk.Open(disk.Options{Dir: filepath.Join(dir, "store"), Reserve: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	})
	admission, as := admitted(t)
	c := &cared{store: kept, dir: dir, asAt: as}
	if c.server, err = New(Options{Store: wrap(kept), Profiles: filepath.Join(dir, "profiles"), Admission: admission, Now: func() time.Time { return noon }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.server.Close)
	c.Server = httptest.NewServer(c.server.Handler())
	t.Cleanup(c.Close)
	c.as = func(token string) *http.Client { return as(c.Server, token) }
	for i := range uint64(50) {
		b := storetest.Batch(profile.Run{1}, storetest.Window(i, "shop", fmt.Sprint(i%5), noon.Add(-time.Duration(i)*time.Minute)))
		if err := kept.Put(t.Context(), "default", store.Raw, b); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func itself(s *disk.Store) store.Store { return s }

// get asks as somebody; the body is all that came.
func (c *cared) get(t *testing.T, token, path string) (int, []byte, error) {
	t.Helper()
	answer, err := c.as(token).Get(c.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

// TestCare has everybody count, check and back up an open store.
func TestCare(t *testing.T) {
	c := careFor(t, itself)
	for token, want := range map[string]int{"default/operator": http.StatusOK, "default/reader": http.StatusForbidden, "default/agent": http.StatusForbidden,
		"default/relay": http.StatusForbidden, "other/operator": http.StatusForbidden, "": http.StatusForbidden, "guessed": http.StatusUnauthorized} {
		for _, path := range []string{StatPath, CheckPath, BackupPath} {
			status, body, err := c.get(t, token, path)
			if err != nil || status != want {
				t.Errorf("%s as %q: %d, want %d: %.200s", path, token, status, want, body)
			}
		}
	}
	_, body, _ := c.get(t, "default/operator", StatPath)
	var stat disk.Statistics
	if err := json.Unmarshal(body, &stat); err != nil || len(stat.Tenants) != 1 || stat.Tenants[0].Levels[0].Windows != 50 || stat.Tenants[0].Levels[0].Level != store.Raw {
		t.Errorf("it has %s, %v", body, err)
	}
	if _, body, _ = c.get(t, "default/operator", CheckPath); string(body) != "{\"done\":true}\n" {
		t.Errorf("the check says %s", body)
	}
	none, err := New(Options{Store: full{}, Admission: c.server.options.Admission})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(none.Handler())
	defer h.Close()
	elsewhere := &cared{Server: h, as: func(token string) *http.Client { return c.asAt(h, token) }}
	if status, body, _ := elsewhere.get(t, "default/operator", StatPath); status != http.StatusNotImplemented {
		t.Errorf("a store that is on no disk: %d %s", status, body)
	}
}

// TestBackedUp backs a store up, with what it was told to record.
func TestBackedUp(t *testing.T) {
	c := careFor(t, itself)
	if _, err := c.server.Apply(t.Context(), &atysv1.ApplyRequest{Objects: []string{`{"kind":"Profile","name":"shells"}`}}); err != nil {
		t.Fatal(err)
	}
	_, body, err := c.get(t, "default/operator", BackupPath)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	contents, err := backup.Unpack(bytes.NewReader(body), dir)
	if err != nil || contents.Files["profiles/default/shells.json"] == 0 || !contents.Made.Equal(noon) {
		t.Fatalf("%+v, %v", contents, err)
	}
	copied, err := disk.Open(disk.Options{Dir: filepath.Join(dir, backup.Store), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	stat, err := copied.Stat(t.Context())
	if err != nil || stat.Tenants[0].Levels[0].Windows != 50 {
		t.Errorf("the backup has %+v, %v", stat, err)
	}
	if err := copied.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
	if err := backup.Finish(dir, contents); err != nil {
		t.Error(err)
	}
	if _, err := backup.Read(dir); err != nil {
		t.Errorf("reading it has changed it: %v", err)
	}
	if left := c.snapshots(t); len(left) != 0 {
		t.Errorf("the server has left %v", left)
	}
}

// snapshots are what lies beside the store.
func (c *cared) snapshots(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "store" && e.Name() != "profiles" {
			names = append(names, e.Name())
		}
	}
	return names
}

// troubled is a store whose snapshot or check fails, or lasts.
type troubled struct {
	*disk.Store
	spoil func(dir string)
	err   error
	begun chan struct{}
	last  chan struct{}
}

func (s *troubled) Snapshot() (string, func() error, error) {
	if s.err != nil {
		return "", nil, s.err
	}
	if s.begun != nil {
		close(s.begun)
		<-s.last
	}
	dir, done, err := s.Store.Snapshot()
	if err == nil && s.spoil != nil {
		s.spoil(dir)
	}
	return dir, done, err
}

// TestBackupFails has a backup fail before it begins and half way, and be asked
// for while there is another.
func TestBackupFails(t *testing.T) {
	trouble := &troubled{err: fmt.Errorf("%w: 3 MB are left", store.ErrFull)}
	c := careFor(t, func(s *disk.Store) store.Store { trouble.Store = s; return trouble })
	if status, body, _ := c.get(t, "default/operator", BackupPath); status != http.StatusInsufficientStorage || !strings.Contains(string(body), "3 MB are left") {
		t.Errorf("on a full disk: %d %s", status, body)
	}
	trouble.err = nil
	profiles := filepath.Join(c.dir, "profiles") // of which there are none: it is read once the store was sent
	if err := os.WriteFile(profiles, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, body, err := c.get(t, "default/operator", BackupPath)
	if _, unpackErr := backup.Unpack(bytes.NewReader(body), t.TempDir()); err == nil || unpackErr == nil || len(body) == 0 {
		t.Errorf("half a backup, %d bytes: %v, and unpacked %v", len(body), err, unpackErr)
	}
	if err := os.Remove(profiles); err != nil {
		t.Fatal(err)
	}
	trouble.begun, trouble.last = make(chan struct{}), make(chan struct{})
	first := make(chan int)
	go func() {
		status, _, _ := c.get(t, "default/operator", BackupPath)
		first <- status
	}()
	<-trouble.begun
	if status, body, _ := c.get(t, "default/operator", CheckPath); status != http.StatusConflict {
		t.Errorf("two at once: %d %s", status, body)
	}
	close(trouble.last)
	if status := <-first; status != http.StatusOK {
		t.Errorf("the first of two: %d", status)
	}
	if left := c.snapshots(t); len(left) != 0 {
		t.Errorf("the server has left %v", left)
	}
}

// TestReaderGone has who reads a backup go away: the snapshot is removed.
func TestReaderGone(t *testing.T) {
	c := careFor(t, func(s *disk.Store) store.Store {
		return &troubled{Store: s, spoil: func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 64<<20), 0o600); err != nil {
				t.Error(err)
			}
		}}
	})
	answer, err := c.as("default/operator").Get(c.URL + BackupPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(answer.Body).ReadByte(); err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "no snapshot is left", func() bool { return len(c.snapshots(t)) == 0 })
}

// readBy is an answer that tells by when it is to be read.
type readBy struct {
	*httptest.ResponseRecorder
	by time.Time
}

func (d *readBy) SetWriteDeadline(at time.Time) error {
	d.by = at
	return nil
}

// TestAnswersAreDue gives up whatever nobody reads.
func TestAnswersAreDue(t *testing.T) {
	s, err := New(Options{Store: mem.New(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/", StatPath, "/atys.v1.Query/Merge"} {
		d := &readBy{ResponseRecorder: httptest.NewRecorder()}
		s.Handler().ServeHTTP(d, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		if d.by.IsZero() {
			t.Errorf("%s may be read at any time", path)
		}
	}
}
