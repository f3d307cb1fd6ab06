package mem_test

import (
	"testing"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Engine{
		Open:   func(*testing.T) store.Store { return mem.New(1) },
		Settle: func(s store.Store) { s.(*mem.Store).Settle() },
	})
}
