package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/health"
	"atys.dev/atys/internal/store/disk"
)

// names lists some of what a check found.
func names(all []string) string {
	const most = 5
	slices.Sort(all)
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}

// which lists the nodes of agents that are meant.
func (f ServerFacts) which(meant func(AgentFacts) bool) (nodes []string) {
	for _, a := range f.Agents {
		if meant(a) {
			nodes = append(nodes, a.Node)
		}
	}
	return nodes
}

func (f ServerFacts) heard() Check {
	silent := f.which(func(a AgentFacts) bool { return a.Phase == "silent" })
	there := len(f.which(func(a AgentFacts) bool { return a.Phase != "left" })) // who ended in order is not missed
	c := Check{Name: "connected", State: OK, Found: fmt.Sprintf("%d of %d", there-len(silent), there)}
	switch {
	case there == 0:
		c.State, c.Cost = Limited, "no machine is profiled for this server"
		c.Mend = "on each machine: sudo atys agent --server " + quote(f.Address) + " --token-file agent.token"
	case len(silent) > 0:
		c.State, c.Found = Limited, c.Found+"; silent: "+names(silent)
		c.Cost = "what these machines do is not known, until they ship what they keep; those that do not come back are forgotten after a day"
		c.Mend = "on such a machine: sudo systemctl restart atys-agent; journalctl -u atys-agent"
	}
	return c
}

func (f ServerFacts) lost() Check {
	lost, shipped := 0, 0
	for _, a := range f.Agents {
		lost, shipped = lost+a.Lost, shipped+a.Shipped
	}
	c := Check{Name: "windows lost", State: OK, Found: fmt.Sprintf("%d, and %d were shipped, since agents began", lost, shipped)}
	if nodes := f.which(func(a AgentFacts) bool { return a.Lost > 0 }); len(nodes) > 0 {
		c.State, c.Found = Limited, c.Found+"; of "+names(nodes)
		c.Cost = "dropped by a full spool, damaged in it, or refused by the server: answers miss them"
		c.Mend = "on such a machine: journalctl -u atys-agent says which; atys agent --spool MEGABYTES keeps more"
	}
	return c
}

// late tells whether an agent reports late windows, or more of them wait than it has
// between two uploads: an older agent reports nothing.
func late(a AgentFacts) bool {
	return health.Backlog(a.Waiting, a.Targets) || a.condition(string(health.Late)) != nil
}

func (f ServerFacts) waiting() Check {
	waiting := 0
	for _, a := range f.Agents {
		waiting += a.Waiting
	}
	c := Check{Name: "windows late", State: OK, Found: fmt.Sprintf("%d wait to be shipped", waiting)}
	if nodes := f.which(late); len(nodes) > 0 {
		c.State, c.Found = Limited, c.Found+"; late on "+names(nodes)
		c.Cost = "answers about the last minutes miss them, until they are shipped"
		c.Mend = "on such a machine: journalctl -u atys-agent says why"
	}
	return c
}

func (f ServerFacts) clocks() Check {
	c := Check{Name: "clocks", State: OK, Found: fmt.Sprintf("within %v of the server's", wrongClock)}
	wrong := f.which(func(a AgentFacts) bool {
		offset, err := time.ParseDuration(a.ClockOffset)
		return err == nil && offset.Abs() > wrongClock
	})
	if len(wrong) > 0 {
		c.State, c.Found = Limited, fmt.Sprintf("further than %v from the server's: %s", wrongClock, names(wrong))
		c.Cost = "windows of these machines lie at other times than they should, beside those of others"
		c.Mend = "on such a machine: sudo systemctl enable --now systemd-timesyncd"
	}
	return c
}

func (f ServerFacts) versions() Check {
	versions := map[string]int{}
	for _, a := range f.Agents {
		versions[a.Version]++
	}
	c := Check{Name: "versions", State: OK, Found: fmt.Sprintf("%d, and the server's", len(versions))}
	if theirs := f.Status.GetVersion(); len(versions) == 1 && versions[theirs] > 0 || len(versions) == 0 {
		c.Found = "as the server's"
	} else if len(versions) > 0 {
		c.Found = fmt.Sprintf("other ones than the server's: %s; that is no harm, where their protocol is the same", names(slices.Collect(maps.Keys(versions))))
	}
	return c
}

// refused tells what the server did not take. Stacks that it asks for first are no
// trouble, nor are requests that their own sender gave up.
func (f ServerFacts) refused() []Check {
	if f.Status == nil {
		return nil
	}
	m := f.Status.GetMachine()
	if m == nil {
		return []Check{{Name: "taken", State: OK, Found: "told to the server's own tenant alone, as are its disk and what is to be added up"}}
	}
	c := Check{Name: "taken", State: OK, Found: fmt.Sprintf("%d uploads since it began", m.GetPushes()["ok"])}
	var bad []string
	for code, n := range m.GetPushes() {
		if code != "ok" && code != "unknown_stacks" && code != "canceled" {
			bad = append(bad, fmt.Sprintf("%d %s", n, code))
		}
	}
	if len(bad) > 0 {
		c.State, c.Found = Limited, c.Found+"; not taken: "+names(bad)
		c.Cost = "invalid_argument and resource_exhausted are refused for good and lost (too old, clocks that are wrong, too many series); others come again"
		c.Mend = "journalctl -u atys-server says why; --retention tells how old windows may be"
	}
	checks := []Check{c}
	if refused := m.GetRefused(); len(refused) > 0 {
		var who []string
		for code, n := range refused {
			who = append(who, fmt.Sprintf("%d %s", n, code))
		}
		checks = append(checks, Check{Name: "not let in", State: Limited, Found: names(who), Cost: "somebody asks with no token, one that is not known, or one of another role",
			Mend: "give them one: atys token --tokens FILE --role ROLE; unavailable is too often: --request-rate"})
	}
	if n := m.GetTokenFailures(); n > 0 {
		checks = append(checks, Check{Name: "file of tokens", State: Limited, Found: fmt.Sprintf("could not be read again %d times", n),
			Cost: "tokens that were added or taken back since have no effect", Mend: "journalctl -u atys-server says which line is wrong"})
	}
	return checks
}

// gaps tells when agents that record everything did not watch.
func (f ServerFacts) gaps() Check {
	c := Check{Name: "last hour", State: OK, Found: fmt.Sprintf("%d windows, no gaps", f.Coverage.GetWindows())}
	if f.CoverageErr != nil {
		return Check{Name: c.Name, State: Limited, Found: reason(f.CoverageErr), Cost: "questions are not answered", Mend: "journalctl -u atys-server says why"}
	}
	var nodes []string
	for _, n := range f.Coverage.GetNodes() {
		var missing time.Duration
		for _, m := range n.GetMissing() {
			missing += time.Duration(m.GetToUnixNano() - m.GetFromUnixNano())
		}
		if missing > 0 {
			nodes = append(nodes, fmt.Sprintf("%s (%v)", n.GetNode(), missing.Round(time.Second)))
		}
	}
	if len(nodes) > 0 {
		c.State, c.Found = Limited, "not watched all the time: "+names(nodes)
		c.Cost, c.Mend = "what these machines did then is not known", "atys query windows --from -1h says when; the agent's journal says why"
	}
	return c
}

func (f ServerFacts) damaged() Check {
	c := Check{Name: "damage", State: OK, Found: "none in what was kept of the last hour"}
	if f.CoverageErr != nil {
		c.Found = "not known"
	} else if n := f.Coverage.GetDamaged(); n > 0 {
		c.State, c.Found, c.Cost = Limited, fmt.Sprintf("%d parts of the last hour cannot be read", n), "answers leave them out"
		c.Mend = "sudo systemctl stop atys-server; sudo -u atys atys store check --data /var/lib/atys; then atys store restore, from a backup"
	}
	return c
}

// Parts of a disk and of a quota from which on something should be done.
const (
	littleRoom = 0.1
	nearQuota  = 0.9
)

func (f ServerFacts) store() []Check {
	var checks []Check
	if m := f.Status.GetMachine(); m.GetDiskBytes() > 0 {
		free := float64(m.GetDiskFreeBytes()) / float64(m.GetDiskBytes())
		c := Check{Name: "disk", State: OK, Found: fmt.Sprintf("%.1f of %.1f GB are free", gigabytes(m.GetDiskFreeBytes()), gigabytes(m.GetDiskBytes()))}
		switch {
		case m.GetDiskFreeBytes() < disk.DefaultReserve:
			c.State, c.Found = Limited, fmt.Sprintf("full: %d MB are free, and the store leaves %d MB free", m.GetDiskFreeBytes()>>20, disk.DefaultReserve>>20)
			c.Cost = "nothing is stored: agents keep what they cut, and drop the oldest when their spools are full"
			c.Mend = "free space on it, give the server a larger disk, or start it with a shorter --retention, such as raw=2d,1m=7d,10m=30d,1h=400d"
		case free < littleRoom:
			c.State, c.Cost = Limited, "once it is full nothing is kept: agents hold on to what they cut, and drop the oldest when their spools are full"
			c.Mend = "start the server with a shorter --retention, such as raw=2d,1m=7d,10m=30d,1h=400d, or give it a larger disk"
		}
		checks = append(checks, c)
	}
	if m := f.Status.GetMachine(); m.GetOverdueSteps() > 0 {
		checks = append(checks, Check{Name: "added up", State: Limited, Found: fmt.Sprintf("%d steps wait for longer than they should", m.GetOverdueSteps()),
			Cost: "questions about long times take longer, and windows that are dropped meanwhile are in no sum",
			Mend: "give the server more of a CPU; journalctl -u atys-server says whether adding up fails"})
	}
	near := Check{Name: "quotas", State: OK, Found: "none is near"}
	var used []string
	for _, q := range f.Status.GetQuotas() {
		if q.GetMost() > 0 && float64(q.GetUsed()) >= nearQuota*float64(q.GetMost()) {
			used = append(used, fmt.Sprintf("%d of %d %s", q.GetUsed(), q.GetMost(), q.GetWhat()))
		}
	}
	if len(used) > 0 {
		near.State, near.Found, near.Cost = Limited, names(used), "what comes beyond is refused"
		near.Mend = "atys get profiles, agents and relays, or atys debug list, shows what they are; atys delete takes profiles away"
	}
	if f.Status != nil {
		checks = append(checks, near)
	}
	return checks
}

func gigabytes(bytes uint64) float64 { return float64(bytes) / 1e9 }

func (f ServerFacts) relays() []Check {
	if f.RelaysErr != nil {
		return []Check{{Name: "relays", State: Limited, Found: reason(f.RelaysErr), Mend: "journalctl -u atys-server says why"}}
	}
	if len(f.Relays) == 0 {
		return []Check{{Name: "relays", State: OK, Found: "none: agents ship to the server itself"}}
	}
	var groups, idle []string
	for _, r := range f.Relays {
		if !r.Central {
			continue
		}
		groups = append(groups, fmt.Sprintf("%s for %s (%d agents)", r.Name, cmp.Or(r.Group, "all"), r.Agents))
		if r.Agents == 0 {
			idle = append(idle, r.Name)
		}
	}
	checks := []Check{{Name: "relays", State: OK, Found: fmt.Sprintf("%s; %d stand by", names(groups), len(f.Relays)-len(groups))}}
	if len(idle) > 0 {
		checks = append(checks, Check{Name: "without agents", State: Limited, Found: names(idle), Cost: "they relay nothing",
			Mend: "start agents with the relay's --label, and the server with --group-by of the same"})
	}
	return checks
}
