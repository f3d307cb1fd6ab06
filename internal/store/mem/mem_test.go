package mem_test

import (
	"testing"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/mem"
	"atys.dev/atys/internal/store/storetest"
)

func TestStore(t *testing.T) {
	e := storetest.Engine{
		Open: func(_ *testing.T, quotas store.Quotas) store.Store {
			s := mem.New(1)
			s.Quotas, s.Rules = quotas, storetest.Rules()
			return s
		},
		Settle: func(s store.Store) { s.(*mem.Store).Settle() },
	}
	storetest.Run(t, e)
	t.Run("records", func(t *testing.T) { storetest.RunRecords(t, e) })
}
