package disk_test

import (
	"testing"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Engine{Open: func(t *testing.T, quotas store.Quotas) store.Store {
		s, err := disk.Open(disk.Options{Dir: t.TempDir(), Quotas: quotas})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}})
}
