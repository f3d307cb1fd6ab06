package fleet

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLedgerOfANewerVersion reads a profile with fields that this version does not
// know: it stands, and the log says what is ignored.
func TestLedgerOfANewerVersion(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x"+ledgerSuffix)
	text := `{"id":"1","created":"2026-11-28T12:00:00Z","mood":"good","profile":{"kind":"Profile","name":"x","frequency":{"min":19,"max":99,"new":1},"colour":"red"}}`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	all, err := ledger{dir}.read(slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil || len(all) != 1 || all[0].Profile.Frequency != 99 {
		t.Fatalf("%+v, %v", all, err)
	}
	if !strings.Contains(said.String(), "colour frequency.new") {
		t.Errorf("the log says %s", said.String())
	}
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}
