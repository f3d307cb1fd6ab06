/* Three times as long in heavy as in light. */
#include <stdio.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void leaf(int n)
{
	for (int i = 0; i < n; i++)
		sum += i;
}

__attribute__((noinline)) static void light(void)
{
	leaf(20000);
	sum++;
}

__attribute__((noinline)) static void heavy(void)
{
	leaf(60000);
	sum++;
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	for (;;) {
		light();
		heavy();
	}
}
