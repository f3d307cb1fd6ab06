package dotnet
import ("testing";"context";"os";"strconv";"strings";"time")
func TestTmp(t *testing.T){
 b,_:=os.ReadFile("/tmp/vm2/pid"); pid,_:=strconv.Atoi(strings.TrimSpace(string(b)))
 ctx,c:=context.WithTimeout(t.Context(),Patience*5); defer c()
 n:=time.Now()
 m,err:=Ask(ctx,pid)
 t.Log(time.Since(n),m.Len(),err)
 for _,x:=range m.sorted { if strings.Contains(x.Name,"Victim")||strings.Contains(x.Name,"Sort") {t.Logf("%#x %#x %s",x.Start,x.End,x.Name)}}
}
