package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"atys.dev/atys/internal/spec"
)

// profiles are the profiles that users have applied. The lock of their Fleet guards
// them.
type profiles struct {
	log    *slog.Logger
	now    func() time.Time
	ledger ledger
	rates  Rates
	random *rand.Rand
	began  time.Time

	of     map[string]*task // by name
	chosen time.Time        // when instances were last chosen
	kept   time.Time        // when choices were last written to the ledger
}

// task is a profile with what agents are sent of it.
type task struct {
	*ordered
	choice          // where instances are limited
	restored bool   // read from the ledger: the agents of chosen targets may not have connected again yet
	unkept   bool   // the ledger has another choice
	json     string // the profile, cached
}

// text returns the profile as agents are sent it: a thousand may ask at once.
func (t *task) text() (string, error) {
	if t.json == "" {
		text, err := json.Marshal(t.Profile)
		if err != nil {
			return "", err
		}
		t.json = string(text)
	}
	return t.json, nil
}

func readProfiles(o Options) (profiles, error) {
	p := profiles{log: o.Log, now: o.Now, ledger: ledger{o.Profiles}, rates: o.Rates, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		began: o.Now(), of: map[string]*task{}}
	all, err := p.ledger.read(o.Log)
	if err != nil {
		return p, err
	}
	for _, o := range all {
		t := &task{ordered: o, restored: true}
		if t.choice, err = p.ledger.readChoice(o); err != nil {
			p.log.Error("read the chosen instances of a profile: others are chosen", "profile", o.Profile.Name, "error", err)
		}
		p.add(t)
	}
	return p, nil
}

// add adds a profile, in place of the one of its name.
func (p *profiles) add(t *task) {
	p.of[t.Profile.Name] = t
	p.rates.Follow(t.ID, t.Created, t.Profile)
}

// apply adds or changes all of the profiles, or none. One that is applied again
// unchanged continues.
func (p *profiles) apply(orders []*ordered, agents *agents) error {
	p.forgetDone()
	more := 0
	for _, o := range orders {
		if p.of[o.Profile.Name] == nil {
			more++
		}
	}
	if !p.makeRoom(more, orders) {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("there are %d profiles, and at most %d are kept: delete some", len(p.of), maxProfiles))
	}
	fresh := slices.DeleteFunc(slices.Clone(orders), func(o *ordered) bool {
		old := p.of[o.Profile.Name]
		return old != nil && o.Profile.Duration == 0 && sameProfile(old.Profile, o.Profile)
	})
	for i, o := range fresh {
		if err := p.ledger.keep(o); err != nil {
			p.log.Error("keep a profile", "error", err)
			p.restore(fresh[:i])
			return connect.NewError(connect.CodeUnavailable, errors.New("the profiles could not be kept: apply them again later"))
		}
	}
	for _, o := range fresh {
		t := &task{ordered: o}
		p.add(t)
		p.choose(t, agents)
	}
	p.keepChoices()
	return nil
}

// makeRoom forgets the profiles that ended first, if there is no room for more. It
// spares those that are applied again.
func (p *profiles) makeRoom(more int, applied []*ordered) bool {
	excess := len(p.of) + more - maxProfiles
	if excess <= 0 {
		return true
	}
	var done []*task
	for name, t := range p.of {
		again := slices.ContainsFunc(applied, func(o *ordered) bool { return o.Profile.Name == name })
		if !again && !t.Until.IsZero() && p.now().Sub(t.Until) > lateAgents {
			done = append(done, t)
		}
	}
	if len(done) < excess {
		return false
	}
	slices.SortFunc(done, func(a, b *task) int { return a.Until.Compare(b.Until) })
	for _, t := range done[:excess] {
		if !p.forget(t.Profile.Name) {
			return false
		}
	}
	return true
}

// restore writes back what the ledger held before these profiles were kept.
func (p *profiles) restore(kept []*ordered) {
	for _, o := range kept {
		var err error
		if old := p.of[o.Profile.Name]; old != nil {
			err = p.ledger.keep(old.ordered)
		} else {
			err = p.ledger.drop(o.Profile.Name)
		}
		if err != nil {
			p.log.Error("restore a profile", "profile", o.Profile.Name, "error", err)
		}
	}
}

// sameProfile reports whether two profiles say the same.
func sameProfile(a, b *spec.Profile) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// forget drops a profile, if the ledger can.
func (p *profiles) forget(name string) bool {
	if err := p.ledger.drop(name); err != nil {
		p.log.Error("forget a profile", "error", err)
		return false
	}
	delete(p.of, name)
	p.rates.Forget(name)
	return true
}

// forgetDone forgets profiles that ended long ago.
func (p *profiles) forgetDone() {
	for name, t := range p.of {
		if !t.Until.IsZero() && p.now().Sub(t.Until) > forgetDone {
			p.forget(name)
		}
	}
}

// sorted lists profiles by name.
func (p *profiles) sorted() []*task {
	return slices.SortedFunc(maps.Values(p.of), func(a, b *task) int { return strings.Compare(a.Profile.Name, b.Profile.Name) })
}

// recordingAll returns, by ID, the profiles whose windows show when an agent watched:
// those that record everything that runs.
func (p *profiles) recordingAll(kinds []string) map[string]*spec.Profile {
	builtin := spec.Builtin()
	all := map[string]*spec.Profile{builtin.Name: builtin}
	for _, t := range p.of {
		all[t.ID] = t.Profile
	}
	maps.DeleteFunc(all, func(_ string, p *spec.Profile) bool {
		return !p.All() || p.Adaptive != nil || p.External() || !slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(p.Kinds, kind) })
	})
	return all
}
