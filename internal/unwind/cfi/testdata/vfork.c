// Waits in vfork until the child ends.
#include <unistd.h>

static __attribute__((noinline)) int start(void) {
	int child = vfork();
	if (child == 0) {
		sleep(5);
		_exit(0);
	}
	return child + 1;
}

int main(void) {
	return start() == 0;
}
