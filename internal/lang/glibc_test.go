package lang

import (
	"errors"
	"os"
	"testing"
)

func TestSlotOf(t *testing.T) {
	for key, want := range map[uint32]ThreadSlot{
		0:    {0, 0x318},
		2:    {0, 0x338},
		31:   {0, 0x508},
		32:   {0x518, 8},
		65:   {0x520, 24},
		1023: {0x510 + 31*8, 31*16 + 8},
	} {
		if got, ok := SlotOf(key); !ok || got != want {
			t.Errorf("key %d is at %#x, want %#x", key, got, want)
		}
	}
	if slot, ok := SlotOf(1024); ok {
		t.Errorf("there is no key 1024, but it is at %#x", slot)
	}
}

func TestRequireGlibc(t *testing.T) {
	if err := RequireGlibc(os.Getpid()); err != nil {
		t.Errorf("a program without musl: %v", err)
	}
	if err := RequireGlibc(1 << 30); err == nil || errors.Is(err, ErrNever) {
		t.Errorf("the mappings of no process: %v", err)
	}
}
