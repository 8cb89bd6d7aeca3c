"""Words that ask without saying what about, in the languages that queries come in.

They carry no evidence for a thread: a thread must not be chosen because its description says
"how to", nor be refused because a question says it and no title does. The list is closed and
short on purpose; a word that could name a subject ("will", "may" as a month aside) is judged
by what it mostly is in a question. Compared after case folding, before stemming.
"""

from __future__ import annotations

from typing import Final

_ENGLISH: Final = """
a about all also am an and any are as at be been being but by can could did do does doing explain
find for from get give had happen happens has have having he her here him his how i if in into is it
its just know like may me mean might more most much must my need no not of on one or our out over
please said same say says shall she should show so some such tell than that the their them then
there these they this those to too under up us very want was we were what when where whether which
who whom whose why will with work works would you your
"""
_GERMAN: Final = """
aber als am an auch auf aus bei bin bis da das dass dein dem den der des die dies diese dieser
du durch ein eine einem einen einer eines er es für gibt hat habe haben ich ihr im in ist kann
können man mein mich mir mit muss nach nicht oder ob sein sich sie sind um und uns unser unter
vom von vor wann warum was welche welcher welches wenn wer werden wie wir wird wo zu zum zur
über
"""
_FRENCH: Final = """
au aux avec ce ces cette comment dans de des du elle en est et être il ils je la le les leur ma
mais mes mon ne nous on ont ou où par pas peut pour pourquoi quand que quel quelle quelles quels
qui quoi sa se ses son sont sur un une vos votre vous
"""
_SPANISH: Final = """
al como con cual cuál cuando cuándo cómo de del dónde donde el ella en eres es esta este está
hay la las lo los me mi no nos o para pero por porque puedo que quien quién qué se ser si sin
son su sus tiene tu un una unas uno unos y yo
"""
_VIETNAMESE: Final = """
ai bao bị bởi cho chúng chưa chỉ các cách còn có cùng cũng của cứ do giữa gì hay hoặc hãy hơn họ
khi khác không là làm lâu lên lại mà mọi mỗi một nhiêu như nhưng những nào này nên nó nếu nữa phải
qua ra rất rằng rồi sao sau sẽ theo thì thế trong trên trước tôi tại tới từ việc và vào vì vẫn vậy
về với xin xảy đang điều đâu đây đã đó được đến để ở
"""

FUNCTION_WORDS: Final = frozenset(
    word
    for language in (_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _VIETNAMESE)
    for word in language.split()
)
