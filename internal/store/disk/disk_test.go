package disk_test

import (
	"testing"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

func TestStore(t *testing.T) {
	e := storetest.Engine{Open: func(t *testing.T, quotas store.Quotas) store.Store {
		s, err := disk.Open(disk.Options{Dir: t.TempDir(), Quotas: quotas, Rules: storetest.Rules()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}
	storetest.Run(t, e)
	t.Run("records", func(t *testing.T) { storetest.RunRecords(t, e) })
}
