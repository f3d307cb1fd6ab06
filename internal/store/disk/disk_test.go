package disk_test

import (
	"testing"

	"atys.dev/atys/internal/store"
	"atys.dev/atys/internal/store/disk"
	"atys.dev/atys/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Engine{Open: func(t *testing.T) store.Store {
		s, err := disk.Open(disk.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}})
}
