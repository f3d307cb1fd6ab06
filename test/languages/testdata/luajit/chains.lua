-- Work in loops that LuaJIT compiles, below calls that it does not inline.
local function burn(n)
  local s = 0
  for i = 1, n do s = (s * 31 + i) % 1000003 end
  return s
end

local function descend(depth)
  if depth == 0 then return burn(20000) end
  return 1 + descend(depth - 1)
end

print("ready")
io.flush()
while true do descend(20) end
