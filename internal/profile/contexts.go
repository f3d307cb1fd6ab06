package profile

// ContextTable numbers contexts, as rows refer to them: the zero Context is number 0, the others
// are numbered in the order in which they come. The zero value is ready to use.
type ContextTable struct {
	all []Context
	ids map[Context]ContextID
}

// ID finds or adds a context.
func (t *ContextTable) ID(c Context) ContextID {
	if c == (Context{}) {
		return 0
	}
	id, ok := t.ids[c]
	if !ok {
		if t.ids == nil {
			t.ids = map[Context]ContextID{}
		}
		t.all = append(t.all, c)
		id = ContextID(len(t.all))
		t.ids[c] = id
	}
	return id
}

// All lists the contexts from number 1 on, as Window.Contexts does.
func (t *ContextTable) All() []Context { return t.all }

// Context returns the context of a number.
func (t *ContextTable) Context(id ContextID) Context {
	if id == 0 {
		return Context{}
	}
	return t.all[id-1]
}
