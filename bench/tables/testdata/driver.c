/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* Runs known call chains in a file's code: maps the file's code, and stands in one
 * leaf after another, each with a stack that plan.go laid out. The leaf counts down
 * and jumps back; nothing of the file's own code is run.
 *
 *   driver FILE PLAN
 *
 * PLAN, in 64-bit words: how many pieces of code, each: file offset, size
 *                        how many chains, each: leaf's file offset, how many words,
 *                        words; those with CODE set are file offsets, OUTERMOST is
 *                        where the outermost frame returns to */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CODE (1ull << 62)
#define OUTERMOST (1ull << 61)
#define COUNT 4000000ull /* of a leaf's loop: some milliseconds */

void stand(uint64_t sp, uint64_t pc, uint64_t count);
extern const char outermost[];

asm(".text\n"
    ".globl stand\n"
    "stand:\n"
    "  .cfi_startproc\n"
    "  push %r12\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  mov %rsp, %r12\n"
    "  .cfi_def_cfa_register %r12\n"
    "  mov %rdx, %rcx\n"
    "  lea 1f(%rip), %rdx\n"
    "  mov %rdi, %rsp\n"
    "  jmp *%rsi\n"
    "1: mov %r12, %rsp\n"
    "  .cfi_def_cfa_register %rsp\n"
    "  pop %r12\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  ret\n"
    "  .cfi_endproc\n"
    "  .cfi_startproc\n"
    "  .cfi_undefined %rip\n"
    "  nop\n"
    "outermost:\n"
    "  nop\n"
    "  hlt\n"
    "  .cfi_endproc\n");

static void *whole(const char *path, int prot, size_t *size)
{
	struct stat s;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &s)) {
		perror(path);
		exit(1);
	}
	*size = s.st_size;
	void *p = mmap(0, s.st_size, prot, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	close(fd);
	return p;
}

int main(int argc, char **argv)
{
	size_t size;
	if (argc != 3)
		return 2;
	uint64_t *plan = whole(argv[2], PROT_READ | PROT_WRITE, &size);
	struct stat s;
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &s)) {
		perror(argv[1]);
		return 1;
	}
	char *base = mmap(0, s.st_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (uint64_t n = *plan++; n > 0; n--, plan += 2)
		if (mmap(base + plan[0], plan[1], PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, plan[0]) == MAP_FAILED) {
			perror("mmap code");
			return 1;
		}
	uint64_t chains = *plan++, **at = malloc(chains * sizeof(*at));
	for (uint64_t i = 0; i < chains; i++) {
		uint64_t *words = plan + 2, count = plan[1];
		at[i] = plan;
		for (uint64_t w = 0; w < count; w++) {
			if (words[w] & OUTERMOST)
				words[w] = (uint64_t)outermost;
			else if (words[w] & CODE)
				words[w] = (uint64_t)base + (words[w] & ~CODE);
		}
		plan = words + count;
	}
	printf("ready\n");
	fflush(stdout);
	for (uint64_t random = getpid();;) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		uint64_t *chain = at[(random >> 33) % chains];
		stand((uint64_t)(chain + 2), (uint64_t)base + chain[0], COUNT);
	}
}
