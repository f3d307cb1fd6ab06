package server

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// choosePause is how long an agent that fell silent keeps what it was chosen for.
const choosePause = 5 * time.Second

// How long a server that starts waits for agents, which tell of their targets every
// twenty seconds.
const (
	settleTime = 30 * time.Second // whom profiles chose stays chosen without being heard of
	holdOrders = time.Minute      // agents keep what they have where nobody knows whom one chose
)

// place is where a target is.
type place struct {
	node   string
	labels profile.Labels
}

// choose takes, of the targets that a profile means, as many as it wants, at
// random: of agents that are heard of, while the profile lasts. Those that were
// chosen stay while they are there. The lock is held.
func (f *fleet) choose(t *task) (changed bool) {
	if t.Profile.Instances == 0 || !t.Until.IsZero() && f.now().After(t.Until) {
		return false
	}
	settling := t.restored && f.now().Sub(f.began) < settleTime
	if settling && t.Chosen == nil {
		return false // whoever reports first would be chosen for good
	}
	eligible := f.eligible(t)
	count := len(eligible)
	if settling {
		f.await(t, eligible)
		count = max(t.Eligible, len(eligible))
	}
	before := chosenKeys(t.Chosen)
	keep := slices.DeleteFunc(slices.Clone(before), func(key string) bool { _, ok := eligible[key]; return !ok })
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(eligible)), func(key string) bool { return slices.Contains(keep, key) })
	f.random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	keep = append(keep, rest[:min(len(rest), max(t.Profile.Instances-len(keep), 0))]...)
	fresh := t.Chosen == nil
	changed = t.Eligible != count
	t.Eligible, t.Chosen = count, map[string][]profile.Labels{}
	for _, key := range slices.Sorted(slices.Values(keep)) {
		p := eligible[key]
		t.Chosen[p.node] = append(t.Chosen[p.node], p.labels)
	}
	changed = changed || !slices.Equal(before, chosenKeys(t.Chosen))
	t.unkept = t.unkept || changed || fresh
	return changed
}

// eligible finds the targets that a profile means, of agents that are heard of. The
// lock is held.
func (f *fleet) eligible(t *task) map[string]place {
	all := map[string]place{}
	for node, a := range f.agents {
		if f.silent(a) {
			continue
		}
		for _, target := range a.report.GetTargets() {
			if labels := profile.Labels(target.GetLabels()); t.Profile.Matches(labels) {
				all[labels.String()] = place{node, labels}
			}
		}
	}
	return all
}

// await adds what was chosen before the server started, of agents that have told of
// no target yet. The lock is held.
func (f *fleet) await(t *task, eligible map[string]place) {
	for node, all := range t.Chosen {
		if a := f.agents[node]; a != nil && len(a.report.GetTargets()) > 0 {
			continue
		}
		for _, labels := range all {
			eligible[labels.String()] = place{node, labels}
		}
	}
}

// undecided tells whether a profile of before the server started chose some of whom
// nobody knows, and others are not chosen yet. The lock is held.
func (f *fleet) undecided() bool {
	if f.now().Sub(f.began) >= holdOrders {
		return false
	}
	for _, t := range f.profiles {
		lasts := t.Until.IsZero() || f.now().Before(t.Until)
		if t.restored && t.Profile.Instances > 0 && t.Chosen == nil && lasts {
			return true
		}
	}
	return false
}

func chosenKeys(chosen map[string][]profile.Labels) (keys []string) {
	for _, all := range chosen {
		for _, labels := range all {
			keys = append(keys, labels.String())
		}
	}
	slices.Sort(keys)
	return keys
}

// chooseAll chooses for all profiles that want so many instances and no more. The
// lock is held.
func (f *fleet) chooseAll() (changed bool) {
	f.chosen = f.now()
	for _, t := range f.profiles {
		changed = f.choose(t) || changed
	}
	return changed
}

// keepChoices has the ledger hold what was chosen. The lock is held.
func (f *fleet) keepChoices() {
	f.kept = f.now()
	for _, t := range f.profiles {
		if !t.unkept {
			continue
		}
		if err := f.ledger.keepChoice(t.ordered, t.choice); err != nil {
			f.log.Error("keep what a profile chose", "profile", t.Profile.Name, "error", err)
			continue
		}
		t.unkept = false
	}
}
