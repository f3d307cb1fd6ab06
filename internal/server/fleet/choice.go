package fleet

import (
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// choosePause is how often instances are chosen again if nothing else changes: agents
// may have fallen silent.
const choosePause = 5 * time.Second

// How long a server that has started waits for agents, which report their targets
// every twenty seconds.
const (
	settleTime = 30 * time.Second // chosen targets stay chosen although their agents have not reported
	holdOrders = time.Minute      // agents keep their orders while the choice of a profile is not known
)

// choose chooses as many targets as a profile wants, at random, among those that it
// selects of agents that are heard of, until it ends. Chosen targets stay chosen while
// they exist. It reports whether the choice has changed.
func (p *profiles) choose(t *task, agents *agents) (changed bool) {
	if t.Profile.Instances == 0 || !t.Until.IsZero() && p.now().After(t.Until) {
		return false
	}
	settling := t.restored && p.now().Sub(p.began) < settleTime
	if settling && t.Chosen == nil {
		return false // else the agents that report first would be chosen for good
	}
	eligible := agents.eligible(t.Profile)
	count := len(eligible)
	if settling {
		t.await(agents, eligible)
		count = max(t.Eligible, len(eligible))
	}
	before := chosenKeys(t.Chosen)
	keep := slices.DeleteFunc(slices.Clone(before), func(key string) bool { _, ok := eligible[key]; return !ok })
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(eligible)), func(key string) bool { return slices.Contains(keep, key) })
	p.random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	keep = append(keep, rest[:min(len(rest), max(t.Profile.Instances-len(keep), 0))]...)
	fresh := t.Chosen == nil
	changed = t.Eligible != count
	t.Eligible, t.Chosen = count, map[string][]profile.Labels{}
	for _, key := range slices.Sorted(slices.Values(keep)) {
		at := eligible[key]
		t.Chosen[at.node] = append(t.Chosen[at.node], at.labels)
	}
	changed = changed || !slices.Equal(before, chosenKeys(t.Chosen))
	t.unkept = t.unkept || changed || fresh
	return changed
}

// await adds targets that were chosen before the server started, of agents that have
// not reported any target yet.
func (t *task) await(agents *agents, eligible map[string]place) {
	for node, all := range t.Chosen {
		if a := agents.of[node]; a != nil && len(a.report.GetTargets()) > 0 {
			continue
		}
		for _, labels := range all {
			eligible[labels.String()] = place{node, labels}
		}
	}
}

// undecided reports whether the choice of a profile from before the server started
// was lost, and it has not chosen again yet.
func (p *profiles) undecided() bool {
	if p.now().Sub(p.began) >= holdOrders {
		return false
	}
	for _, t := range p.of {
		lasts := t.Until.IsZero() || p.now().Before(t.Until)
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

// chooseAll chooses instances for all profiles that limit them, and reports whether
// any choice has changed.
func (p *profiles) chooseAll(agents *agents) (changed bool) {
	p.chosen = p.now()
	for _, t := range p.of {
		changed = p.choose(t, agents) || changed
	}
	return changed
}

// keepChoices writes changed choices to the ledger.
func (p *profiles) keepChoices() {
	p.kept = p.now()
	for _, t := range p.of {
		if !t.unkept {
			continue
		}
		if err := p.ledger.keepChoice(t.ordered, t.choice); err != nil {
			p.log.Error("keep the chosen instances of a profile", "profile", t.Profile.Name, "error", err)
			continue
		}
		t.unkept = false
	}
}
