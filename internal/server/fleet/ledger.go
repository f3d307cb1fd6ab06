package fleet

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"atys.dev/atys/internal/atomicfile"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/spec"
)

// ordered is a profile that a user has applied.
type ordered struct {
	ID      string // a new one if it is changed, or deleted and applied again
	Created time.Time
	Until   time.Time // zero: until it is deleted
	Profile *spec.Profile
	unknown []string // fields of a newer version, which this one does not know
}

// newOrdered gives a profile an ID of its own.
func newOrdered(p *spec.Profile, now time.Time) *ordered {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	o := &ordered{ID: hex.EncodeToString(id[:]), Created: now, Profile: p}
	if p.Duration > 0 {
		o.Until = now.Add(p.Duration)
	}
	return o
}

// choice is the instances that a profile records, if it limits how many.
type choice struct {
	Chosen   map[string][]profile.Labels `json:"chosen"` // by node; nil: not known
	Eligible int                         `json:"eligible"`
}

// ledger keeps profiles in a directory: a file for each, and one beside it for its
// choice.
type ledger struct{ dir string } // "": nothing is kept

const (
	ledgerSuffix = ".json"
	choiceSuffix = ".chosen"
)

// writtenChoice is a choice in its file.
type writtenChoice struct {
	ID string `json:"id"` // of its profile
	choice
}

// written is an ordered profile in its file.
type written struct {
	ID      string          `json:"id"`
	Created time.Time       `json:"created"`
	Until   *time.Time      `json:"until,omitempty"`
	Profile json.RawMessage `json:"profile"`
}

// read returns all profiles. A file that cannot be read is set aside: one bad profile
// must not stop a server.
func (l ledger) read(log *slog.Logger) (all []*ordered, err error) {
	if l.dir == "" {
		return nil, nil
	}
	files, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read profiles: %w", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ledgerSuffix) {
			continue
		}
		name := filepath.Join(l.dir, f.Name())
		o, err := readOrdered(name)
		if err == nil && o.Profile.Name+ledgerSuffix != f.Name() {
			err = fmt.Errorf("it holds profile %q", o.Profile.Name)
		}
		if err != nil {
			log.Error("set a damaged profile aside", "file", name, "error", err)
			if err := os.Rename(name, name+".damaged"); err != nil {
				log.Error("rename a damaged profile", "file", name, "error", err)
			}
			continue
		}
		if err := o.Profile.CheckNew(); err != nil {
			log.Warn("a profile has a name that is taken no more: delete it, and apply it by another one", "profile", o.Profile.Name, "error", err)
		}
		if len(o.unknown) > 0 {
			log.Warn("ignored fields of a profile that a newer version has kept", "profile", o.Profile.Name, "fields", o.unknown)
		}
		all = append(all, o)
	}
	return all, nil
}

func readOrdered(name string) (*ordered, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, err
	}
	p, unknown, err := spec.ParseKept(w.Profile)
	if err != nil {
		return nil, err
	}
	if w.ID == "" {
		return nil, errors.New("it has no identity")
	}
	o := &ordered{ID: w.ID, Created: w.Created, Profile: p, unknown: unknown}
	if w.Until != nil {
		o.Until = *w.Until
	}
	return o, nil
}

// keep writes a profile atomically and durably.
func (l ledger) keep(o *ordered) error {
	if l.dir == "" {
		return nil
	}
	text, err := json.Marshal(o.Profile)
	if err != nil {
		return err
	}
	w := written{ID: o.ID, Created: o.Created, Profile: text}
	if !o.Until.IsZero() {
		w.Until = &o.Until
	}
	data, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return fmt.Errorf("keep profile %q: %w", o.Profile.Name, err)
	}
	if err := atomicfile.WriteDurably(filepath.Join(l.dir, o.Profile.Name+ledgerSuffix), bytes.NewReader(data)); err != nil {
		return fmt.Errorf("keep profile %q: %w", o.Profile.Name, err)
	}
	return nil
}

// keepChoice writes the choice of a profile. It is written often, so it does not wait
// for the disk: if a crash loses it, other instances are chosen.
func (l ledger) keepChoice(o *ordered, c choice) error {
	if l.dir == "" {
		return nil
	}
	data, err := json.Marshal(writtenChoice{o.ID, c})
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(l.dir, o.Profile.Name+choiceSuffix), bytes.NewReader(data))
}

// readChoice reads the choice of a profile, the zero choice if none was kept.
func (l ledger) readChoice(o *ordered) (choice, error) {
	data, err := os.ReadFile(filepath.Join(l.dir, o.Profile.Name+choiceSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return choice{}, nil
	}
	if err != nil {
		return choice{}, err
	}
	var w writtenChoice
	if err := json.Unmarshal(data, &w); err != nil {
		return choice{}, err
	}
	if w.ID != o.ID { // of a profile that had this name before
		return choice{}, nil
	}
	return w.choice, nil
}

// drop forgets a profile.
func (l ledger) drop(name string) error {
	if l.dir == "" {
		return nil
	}
	for _, suffix := range []string{ledgerSuffix, choiceSuffix} {
		if err := os.Remove(filepath.Join(l.dir, name+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete profile %q: %w", name, err)
		}
	}
	return syncDir(l.dir)
}

func syncDir(dir string) error {
	err := atomicfile.SyncDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
