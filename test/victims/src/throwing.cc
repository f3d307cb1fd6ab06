// C++: burns in methods and templates, with exceptions thrown through three frames now and then.
#include "victim.h"

#include <stdexcept>

namespace work {

enum { PARSE = 1, FAIL, CLEAN, SUM_INT, SUM_DOUBLE, SITES };

const char *const stacks[SITES] = {
	"",
	"main;work::run(burner*);work::Parser::attempt(int);work::Parser::parse(int)",
	"main;work::run(burner*);work::Parser::attempt(int);work::Parser::parse(int);work::Parser::fail(int)",
	"main;work::run(burner*);work::Parser::attempt(int);work::Parser::parse(int);work::Guard::~Guard()",
	"main;work::run(burner*);void work::sum<int>(burner*, int)",
	"main;work::run(burner*);void work::sum<double>(burner*, int)",
};

struct Guard {
	burner *b;
	FUNCTION ~Guard() { burn(b, CLEAN, slice(b) / 2, 11); }
};

struct Parser {
	burner *b;

	FUNCTION void fail(int depth)
	{
		burn(b, FAIL, slice(b), 13);
		if (depth % 5 == 0)
			throw std::runtime_error("no more input");
	}

	FUNCTION void parse(int depth)
	{
		Guard guard{b};
		burn(b, PARSE, slice(b), 17);
		fail(depth);
	}

	FUNCTION void attempt(int depth)
	{
		try {
			parse(depth);
		} catch (const std::exception &) {
			NOT_LAST();
		}
	}
};

template <typename T> FUNCTION void sum(burner *b, int site)
{
	burn(b, site, slice(b), 19 + sizeof(T));
}

FUNCTION void run(burner *b)
{
	Parser parser{b};
	while (!victim_done())
		for (int i = 0; i < 100; i++) {
			if (draw(b) % 2)
				parser.attempt(i);
			else if (draw(b) % 3)
				sum<int>(b, SUM_INT);
			else
				sum<double>(b, SUM_DOUBLE);
			settle_if_due(b);
		}
	victim_settle(b);
}

} // namespace work

int main(int argc, char **argv)
{
	burner b;

	victim_open("throwing", work::stacks, work::SITES, victim_number(argc, argv, 1, 10));
	victim_enter(&b, 1);
	work::run(&b);
	victim_close();
	return 0;
}
