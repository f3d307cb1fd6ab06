package unwind

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"atys.dev/atys/internal/bpf"
)

// ErrTreeUnknown says that this kernel keeps a process's mappings in another
// way than those that walks were written for.
var ErrTreeUnknown = errors.New("this kernel's tree of mappings has another layout than that of 6.1 to 6.18")

// KnowsTree tells whether walks can look up in the kernel itself what user space
// does not know yet; where they cannot, it is ErrTreeUnknown.
func KnowsTree() error {
	spec, err := loadKernel()
	if err != nil {
		return fmt.Errorf("read embedded BPF object: %w", err)
	}
	var loaded struct {
		KnowsTree *ebpf.Program `ebpf:"knows_tree"`
	}
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return bpf.Explain("look at the kernel's tree of mappings", err)
	}
	defer loaded.KnowsTree.Close()
	known, err := loaded.KnowsTree.Run(&ebpf.RunOptions{})
	if err != nil {
		return bpf.Explain("look at the kernel's tree of mappings", err)
	}
	if known == 0 {
		return ErrTreeUnknown
	}
	return nil
}
