package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk/codec"
)

// A commit waits for others so long, or until there is so much of it.
const (
	commitWait  = 10 * time.Millisecond
	commitBytes = 1 << 20
)

// commit is what somebody waits for to be on disk: windows, or a range of keys to
// drop, and all that the tenant's tables hold and the database does not.
type commit struct {
	tenant *tenant
	pairs  [][2][]byte
	sent   bool                // the pairs came from outside, and are not rolled up
	claims []claim             // of those of the pairs that contain others
	stale  map[store.Step]bool // that the pairs' windows lie in
	rolled *store.Step         // that the pairs are all of
	drop   *drop
	bytes  int
	// The numbers in its keys and values are of this generation of the tenant's.
	generation uint64
	done       chan error
	failed     error // it alone is not written
}

// committer writes what was put, in groups.
type committer struct {
	connection *connection
	meter      meter
	commits    chan *commit
	stop       chan struct{} // closed by Close
	done       chan struct{} // the committer has ended
	applying   sync.Mutex    // held while what was committed is noted and written
}

func newCommitter(c *connection) *committer {
	return &committer{connection: c, meter: meter{c.options.Quotas, c.log}, commits: make(chan *commit), stop: make(chan struct{}), done: make(chan struct{})}
}

// Put keeps a batch; see store.Store.
func (s *Store) Put(ctx context.Context, tenant string, level store.Level, b *store.Batch) error {
	for i := range b.Windows {
		if err := checkWindow(&b.Windows[i], level); err != nil {
			return fmt.Errorf("keep a window: %w", err)
		}
	}
	s.puts.Add(1)
	for {
		if err := s.put(ctx, tenant, level, b); !errors.Is(err, errTidied) {
			return err
		}
	}
}

// errTidied says that numbers were given back since those of a commit were found.
var errTidied = errors.New("the tenant was tidied meanwhile")

func (s *Store) put(ctx context.Context, tenant string, level store.Level, b *store.Batch) error {
	r, err := s.resolver(tenant, b)
	if err != nil {
		return err
	}
	defer r.shelf.putBack()
	var c *commit
	if err = s.allow(r.shelf.db, r.shelf.tenant, level); err == nil {
		c, err = r.encode(level)
	}
	r.shelf.db.release() // a commit that breaks it has to wait for all who hold it
	if err != nil {
		return err
	}
	return s.commit(ctx, c)
}

func checkWindow(w *store.Window, level store.Level) error {
	if at := w.Head.Start; at.Before(firstStart) || at.After(lastStart) {
		return fmt.Errorf("it begins at %v", at)
	}
	grouped := len(w.Groups) == store.Groups*len(w.Rows.Values)
	levels := slices.ContainsFunc(w.Head.Types, func(t profile.ValueType) bool { return t.Temporality == profile.Level })
	if len(w.Contains) > 0 && (level != store.Raw || !grouped || w.Of != len(w.Contains)) {
		return errors.New("it contains others, and has no groups, or is of more")
	}
	if len(w.Contains) > 0 && levels {
		return errors.New("it contains others, and has levels")
	}
	for _, p := range w.Contains {
		if p.After < 0 || p.After > w.Head.Duration || w.Head.Start.Add(p.After).After(lastStart) {
			return fmt.Errorf("it contains one that begins %v after it, and lasts %v", p.After, w.Head.Duration)
		}
	}
	return nil
}

// resolver finds the leaves of a batch's stacks, of one service after another: what
// was found of a service is forgotten before the next, so that there is one table,
// however many services there are.
type resolver struct {
	shelf   *shelf
	batch   *store.Batch
	index   map[profile.Hash]int // of the batch's forest
	lesson  *lesson              // nil: none yet
	service string
	leaves  []uint32            // of the service, by stack; or unresolved
	named   [][]profile.StackID // stacks of which there may be some
	unknown map[profile.Hash]bool
	over    *store.QuotaError // nil: there is room for all
	quotas  store.Quotas
}

const unresolved = ^uint32(0)

func (s *Store) resolver(tenant string, b *store.Batch) (*resolver, error) {
	db, t, err := s.acquireTenant(tenant)
	if err != nil {
		return nil, err
	}
	return &resolver{shelf: s.shelf(db, t), batch: b, quotas: s.options.Quotas, unknown: map[profile.Hash]bool{}}, nil
}

// encode makes a commit of the batch. All that is unknown is told at once.
func (r *resolver) encode(level store.Level) (*commit, error) {
	t := r.shelf.tenant
	t.encoding.RLock()
	defer t.encoding.RUnlock()
	c := t.newCommit()
	c.sent, c.stale = level == store.Raw, map[store.Step]bool{}
	for _, i := range r.byService() {
		w := &r.batch.Windows[i]
		l, err := r.resolve(w)
		if err != nil {
			return nil, err
		}
		if len(r.unknown) > 0 {
			continue
		}
		key, err := r.key(level, w, store.Part{Series: w.Series, Run: w.Run})
		if r.noRoom(err, i) {
			continue
		} else if err != nil {
			return nil, err
		}
		for part, p := range w.Contains {
			contained, err := r.key(level, w, p)
			if r.noRoom(err, i, part) {
				continue
			} else if err != nil {
				return nil, err
			}
			c.claims = append(c.claims, claim{i, part, contained, key})
			c.bytes += len(contained) + len(key)
		}
		value := codec.EncodeWindow(w, l)
		c.pairs = append(c.pairs, [2][]byte{key, value})
		c.bytes += len(key) + len(value)
		if level == store.Raw {
			for _, step := range store.Steps(w.Head.Start) {
				c.stale[step] = true
			}
		}
	}
	if len(r.unknown) > 0 {
		return nil, &store.UnknownError{Stacks: slices.Collect(maps.Keys(r.unknown))}
	}
	if r.over != nil {
		return nil, r.over
	}
	if r.batch.Forest != nil { // also of stacks that others have explained, who had no names
		t.places.improveAll(r.batch.Forest, r.lesson.found())
	}
	return c, nil
}

// noRoom notes that there is none for the series of a window, or of some of its
// parts: all that there is no room for is told at once.
func (r *resolver) noRoom(err error, window int, parts ...int) bool {
	var over *store.QuotaError
	if !errors.As(err, &over) {
		return false
	}
	if r.over == nil {
		r.over = &store.QuotaError{What: over.What, Limit: over.Limit, Refused: map[int][]int{}}
	}
	r.over.Refused[window] = append(r.over.Refused[window], parts...)
	return true
}

func (t *tenant) newCommit() *commit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &commit{tenant: t, generation: t.generation}
}

// byService lists the windows, those of one service together, as they came.
func (r *resolver) byService() (order []int) {
	windows := r.batch.Windows
	of := map[string][]int{}
	var services []string
	for i := range windows {
		service := windows[i].Series[store.ServiceLabel]
		if of[service] == nil {
			services = append(services, service)
		}
		of[service] = append(of[service], i)
	}
	for _, service := range services {
		order = append(order, of[service]...)
	}
	return order
}

// resolve returns the leaves of a window's stacks.
func (r *resolver) resolve(w *store.Window) (l codec.Leaves, err error) {
	service := w.Series[store.ServiceLabel]
	d, err := r.shelf.take(service)
	if err != nil {
		return l, err
	}
	if r.leaves == nil || r.service != service {
		r.turnTo(service)
	}
	l.Rows = r.find(d, w.Rows.Stack)
	if w.Rows.Peer != nil {
		var stacks []profile.StackID
		for _, peer := range w.Rows.Peer {
			if peer != 0 {
				stacks = append(stacks, profile.StackID(peer-1))
			}
		}
		found := r.find(d, stacks)
		l.Peers = make([]uint32, len(w.Rows.Peer))
		for i, peer := range w.Rows.Peer {
			if peer != 0 {
				l.Peers[i], found = found[0]+1, found[1:]
			}
		}
	}
	if len(w.Exemplars) > 0 {
		stacks := make([]profile.StackID, len(w.Exemplars))
		for i, e := range w.Exemplars {
			stacks[i] = e.Stack
		}
		l.Exemplars = r.find(d, stacks)
	}
	return l, nil
}

// find returns the leaf of each stack.
func (r *resolver) find(d *dictionary, stacks []profile.StackID) []uint32 {
	r.named = append(r.named, stacks)
	d.find(r.batch.Stacks, stacks, r.leaves)
	found := make([]uint32, len(stacks))
	for i, stack := range stacks {
		if r.leaves[stack] == unresolved {
			r.leaves[stack] = r.learn(d, r.batch.Stacks[stack])
		}
		found[i] = r.leaves[stack]
	}
	return found
}

// turnTo forgets what was found of a service, and begins with another one.
func (r *resolver) turnTo(service string) {
	r.service = service
	if r.leaves == nil {
		r.leaves = slices.Repeat([]uint32{unresolved}, len(r.batch.Stacks))
	}
	for _, stacks := range r.named {
		for _, stack := range stacks {
			r.leaves[stack] = unresolved
		}
	}
	r.named = r.named[:0]
	if r.lesson != nil {
		r.lesson.forget()
	}
}

// learn gives the leaf of a stack that the dictionary does not know.
func (r *resolver) learn(d *dictionary, h profile.Hash) uint32 {
	if forest := r.batch.Forest; r.lesson == nil && forest != nil {
		r.index, r.lesson = forest.Index(), newLesson(forest)
	}
	leaf, ok := r.index[h]
	if !ok {
		r.unknown[h] = true
		return unresolved
	}
	return d.learn(r.shelf.tenant.places, r.lesson, leaf)
}

// commit waits until it is on disk. Who ends that wait does not know whether it
// will be.
func (s *committer) commit(ctx context.Context, c *commit) error {
	c.done = make(chan error, 1)
	select {
	case s.commits <- c:
	case <-s.stop:
		return store.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commitAll writes what is waiting, all of it with one sync.
func (s *committer) commitAll() {
	defer close(s.done)
	for {
		select {
		case c := <-s.commits:
			group := s.gather(c)
			failed, err := s.write(group)
			for _, c := range group {
				c.done <- cmp.Or(c.failed, err)
			}
			if failed != nil {
				s.connection.retire(failed)
			}
		case <-s.stop:
			return
		}
	}
}

// gather waits a moment for others.
func (s *committer) gather(first *commit) []*commit {
	group, bytes := []*commit{first}, first.bytes
	wait := time.NewTimer(commitWait)
	defer wait.Stop()
	for bytes < commitBytes {
		select {
		case more := <-s.commits:
			group = append(group, more)
			bytes += more.bytes
		case <-wait.C:
			return group
		case <-s.stop:
			return group
		}
	}
	return group
}

// write writes commits. If the database broke, it is given back to be closed.
func (s *committer) write(group []*commit) (failed *database, err error) {
	if group, err = s.fit(group); err != nil || len(group) == 0 {
		return nil, err
	}
	db, err := s.connection.acquireLast()
	if err != nil {
		return nil, err
	}
	defer db.release()
	if db.failing.Load() {
		return nil, fmt.Errorf("%w: what is in memory could not be written out to %q", store.ErrFull, s.connection.options.Dir)
	}
	s.applying.Lock()
	saved, err := db.apply(s.meter.within(db, current(group)))
	s.applying.Unlock()
	if err != nil {
		if errors.As(err, &broken{}) {
			failed = db
		}
		return failed, fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	for _, done := range saved {
		done()
	}
	return nil, nil
}

// current gives the commits of a group whose numbers still hold; the others have
// failed. No commit is being applied.
func current(group []*commit) (may []*commit) {
	for _, c := range group {
		c.tenant.mu.Lock()
		old := c.generation != c.tenant.generation
		c.tenant.mu.Unlock()
		if old && len(c.pairs) > 0 {
			c.failed = errTidied
		} else {
			may = append(may, c)
		}
	}
	return may
}

// apply writes commits with one sync. What it gives is to be done afterwards.
func (d *database) apply(group []*commit) (saved []func(), err error) {
	defer caught(&err)
	b := d.NewBatch()
	defer b.Close() // it was applied, or is of no use
	if group, err = d.decide(group); err != nil {
		return nil, err
	}
	tenants := map[*tenant]bool{}
	for _, c := range group {
		c.tenant.mark(c.stale)
	}
	for _, c := range group {
		size := b.Len()
		if !tenants[c.tenant] {
			tenants[c.tenant] = true
			done, err := c.tenant.save(b)
			if err != nil {
				return nil, err
			}
			saved = append(saved, done...)
		}
		if err := c.add(b); err != nil {
			return nil, err
		}
		d.wrote(c.tenant, int64(b.Len()-size))
	}
	return saved, b.Commit(pebble.Sync)
}

func (c *commit) add(b *pebble.Batch) error {
	if c.drop != nil {
		return c.drop.add(b, c.tenant.name)
	}
	for _, p := range c.pairs {
		if err := b.Set(p[0], p[1], nil); err != nil {
			return err
		}
	}
	for _, one := range c.claims {
		if err := b.Set(claimKey(one.contained), one.by, nil); err != nil {
			return err
		}
	}
	if c.rolled != nil && !c.tenant.marked(*c.rolled) {
		return b.Delete(staleKey(c.tenant.name, *c.rolled), nil)
	}
	return nil
}

// save adds to a batch what the tables of a tenant hold and the database does
// not. What it gives is to be done once the batch is on disk. Tables only grow
// meanwhile; what comes later is in the next batch.
func (t *tenant) save(b *pebble.Batch) (done []func(), err error) {
	t.mu.Lock()
	dictionaries := make([]*dictionary, 0, len(t.dictionaries))
	for _, d := range t.dictionaries {
		dictionaries = append(dictionaries, d)
	}
	if t.saved < len(t.series) {
		err = t.tail.note(b, newKey(spaceSeries, t.name), uint32(t.saved))
	}
	for n := t.saved; n < len(t.series); n++ {
		err = errors.Join(err, t.saveSeries(b, uint32(n)))
	}
	for _, n := range t.rewritten {
		err = errors.Join(err, t.saveSeries(b, n))
	}
	count, rewritten := len(t.series), len(t.rewritten)
	var steps []store.Step
	for step, saved := range t.stale {
		if !saved {
			steps = append(steps, step)
			err = errors.Join(err, b.Set(staleKey(t.name, step), nil, nil))
		}
	}
	t.mu.Unlock()
	done = append(done, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.saved < count {
			t.saved, t.tail = count, tail{}
		}
		t.rewritten = t.rewritten[rewritten:]
		for _, step := range steps {
			if _, ok := t.stale[step]; ok { // else it is being added up
				t.stale[step] = true
			}
		}
	})
	// Calls before places: those of a call are there when it is.
	for _, d := range dictionaries {
		more, saveErr := d.save(b, t.name)
		done, err = append(done, more), errors.Join(err, saveErr)
	}
	more, saveErr := t.places.save(b, t.name)
	return append(done, more), errors.Join(err, saveErr)
}

// saveSeries writes a series, or that its number is free. The tenant is locked.
func (t *tenant) saveSeries(b *pebble.Batch, number uint32) error {
	var kept []byte
	if s := t.series[number]; s != nil {
		kept = []byte(keptLabels(s.labels))
	}
	return b.Set(newKey(spaceSeries, t.name).number(number), kept, nil)
}

// save adds calls before the leaves that are some of them.
func (d *dictionary) save(b *pebble.Batch, tenant string) (done func(), err error) {
	d.mu.RLock()
	calls, first, leaves, firstLeaf := d.calls, d.saved, d.leaves, d.savedLeaves
	callsTail, leavesTail, cleared := d.tail, d.leavesTail, d.cleared
	d.mu.RUnlock()
	if cleared {
		for _, space := range []byte{spaceCalls, spaceLeaves} {
			prefix := newKey(space, tenant).text(d.service)
			err = errors.Join(err, b.DeleteRange(prefix, prefix.after(), nil))
		}
	}
	if first < len(calls) {
		prefix := newKey(spaceCalls, tenant).text(d.service)
		err = errors.Join(err, callsTail.note(b, prefix, uint32(first)), b.Set(prefix.number(uint32(first)), encodeCalls(calls[first:], first), nil))
	}
	if firstLeaf < len(leaves) {
		prefix := newKey(spaceLeaves, tenant).text(d.service)
		err = errors.Join(err, leavesTail.note(b, prefix, uint32(firstLeaf)), b.Set(prefix.number(uint32(firstLeaf)), encodeLeaves(leaves[firstLeaf:]), nil))
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cleared = d.cleared && !cleared
		if first < len(calls) {
			d.saved, d.tail = len(calls), tail{}
		}
		if firstLeaf < len(leaves) {
			d.savedLeaves, d.leavesTail = len(leaves), tail{}
		}
	}, err
}

func sortedNames(l profile.Labels) []string {
	names := make([]string, 0, len(l))
	for name := range l {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
