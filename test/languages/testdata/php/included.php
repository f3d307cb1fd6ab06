<?php
return Shop\burn(2000);
