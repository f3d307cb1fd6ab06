-module(chains).
-export([main/1]).

%% What burns returns something that the compiler cannot know: it makes calls
%% whose result it knows the last act of their function.
main(_) ->
    io:format("ready~n"),
    loop(erlang:system_time() rem 2).

loop(T) ->
    recursing(T),
    mapping(T),
    loop(T).

recursing(T) ->
    [descend(20, T)].

descend(0, T) -> [burn(30000, T)];
descend(N, T) -> [descend(N - 1, T)].

mapping(T) ->
    [lists:map(fun(X) -> [each(X, T)] end, [1, 2, 3])].

each(X, T) -> [burn(10000 + X, T)].

burn(0, T) -> T;
burn(N, T) -> burn(N - 1, T).
