package Required;
main::burn(1000);
1;
