/* Preloaded: takes 40 keys of thread-specific data before the interpreter takes
 * its own, which then lies in a block of the second level. */
#include <pthread.h>

__attribute__((constructor)) static void take(void)
{
	pthread_key_t key;
	for (int i = 0; i < 40; i++)
		pthread_key_create(&key, 0);
}
