package proc

import "os"

// AsRoot says how to be allowed what the kernel refused. Root is not told to be root:
// it lacks a capability, as in a container, or something else is in the way.
func AsRoot(orElse, capability string) string { return asRoot(os.Geteuid() == 0, orElse, capability) }

func asRoot(root bool, orElse, capability string) string {
	if root {
		return "this root lacks " + capability + ", as root of a container does, or a filter of system calls is in the way (\"atys doctor\" shows which)"
	}
	return "run as root" + orElse
}
