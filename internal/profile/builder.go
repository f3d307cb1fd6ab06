package profile

import "encoding/binary"

// Builder fills a window: it finds or makes dictionary entries and adds up rows
// that share a key. The zero value is not ready; use NewBuilder.
type Builder struct {
	w         *Window
	locations map[Location]LocationID
	stacks    map[string]StackID
	threads   map[threadKey]ThreadID
	contexts  ContextTable
	rows      map[RowKey]int
	scratch   []byte
}

type threadKey struct {
	pid, tid      int
	process, name string
}

// NewBuilder starts an empty window under the given head.
func NewBuilder(head Head) *Builder {
	return &Builder{
		w:         &Window{Head: head},
		locations: map[Location]LocationID{},
		stacks:    map[string]StackID{},
		threads:   map[threadKey]ThreadID{},
		rows:      map[RowKey]int{},
	}
}

// Location finds or adds a location. Names given for one that has none yet are kept.
func (b *Builder) Location(l Location, names ...Frame) LocationID {
	id, ok := b.locations[l]
	if !ok {
		id = LocationID(len(b.w.Locations))
		b.locations[l] = id
		b.w.Locations = append(b.w.Locations, l)
		b.w.Names = append(b.w.Names, names)
		return id
	}
	if len(b.w.Names[id]) == 0 {
		b.w.Names[id] = names
	}
	return id
}

// Named finds or adds a location that only its name identifies.
func (b *Builder) Named(f Frame) LocationID {
	return b.Location(Location{Kind: f.Kind, Name: f.Function, File: f.File, Line: f.Line}, f)
}

// Stack finds or adds a stack; locations come leaf first and are copied.
func (b *Builder) Stack(locations []LocationID, end End) StackID {
	key := append(b.scratch[:0], byte(end))
	for _, l := range locations {
		key = binary.AppendUvarint(key, uint64(l))
	}
	b.scratch = key
	id, ok := b.stacks[string(key)]
	if !ok {
		id = StackID(len(b.w.Stacks))
		b.stacks[string(key)] = id
		b.w.Stacks = append(b.w.Stacks, Stack{Locations: append([]LocationID(nil), locations...), End: end})
	}
	return id
}

// Thread finds a thread by identity, or adds it. Its exact times are added up.
func (b *Builder) Thread(t Thread) ThreadID {
	key := threadKey{t.PID, t.TID, t.Process, t.Name}
	id, ok := b.threads[key]
	if !ok {
		b.w.Threads = append(b.w.Threads, t)
		id = ThreadID(len(b.w.Threads))
		b.threads[key] = id
		return id
	}
	old := &b.w.Threads[id-1]
	old.Exact.Add(t.Exact)
	old.Pruned = old.Pruned || t.Pruned
	return id
}

// Context finds or adds a context; the zero Context is none.
func (b *Builder) Context(c Context) ContextID {
	id := b.contexts.ID(c)
	b.w.Contexts = b.contexts.All()
	return id
}

// Add adds a row, or adds to the row that has the same key. Values are copied.
func (b *Builder) Add(r Row) {
	key := r.Key()
	i, ok := b.rows[key]
	if !ok {
		rows := &b.w.Rows
		if i = rows.Len(); i == 0 {
			rows.Types = len(b.w.Types)
		}
		b.rows[key] = i
		rows.Append(r)
		return
	}
	b.w.Rows.AddTo(i, r, 1)
}

// AddSample keeps one timed sample beside the rows.
func (b *Builder) AddSample(s Sample) { b.w.Samples = append(b.w.Samples, s) }

// AddExemplar adds an exemplar; Window drops those above MaxExemplars.
func (b *Builder) AddExemplar(e Exemplar) { b.w.Exemplars = append(b.w.Exemplars, e) }

// Head returns the head, to be completed in place. Its value types have to be there before the
// first row is added.
func (b *Builder) Head() *Head { return &b.w.Head }

// Window gives the window built so far. The builder must not be used afterwards.
func (b *Builder) Window() *Window {
	b.w.Exemplars = ChooseExemplars(b.w.Exemplars)
	return b.w
}

// StackEnd tells how a stack added here ended.
func (b *Builder) StackEnd(id StackID) End { return b.w.Stacks[id].End }
